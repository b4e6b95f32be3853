#include "bus/server/json_message.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"

namespace moonpool::bus {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// How much of a caller's own text an error message repeats.
constexpr size_t kQuotedBytesMax = 40;

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, kQuotedBytesMax)) quoted += c >= ' ' && c < 0x7f && c != '"' ? c : '?';
  return quoted + (text.size() > kQuotedBytesMax ? "...\"" : "\"");
}

const FieldDescriptor* FindField(const Descriptor& type, const std::string& name) {
  if (const FieldDescriptor* field = type.FindFieldByName(name)) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == name) return type.field(i);
  }
  return nullptr;
}

const EnumValueDescriptor* FindEnumValue(const FieldDescriptor& field, std::string_view name) {
  const auto* type = field.enum_type();
  for (int i = 0; i < type->value_count(); ++i) {
    const std::string& candidate = type->value(i)->name();
    const bool same = candidate.size() == name.size() &&
                      std::equal(name.begin(), name.end(), candidate.begin(),
                                 [](char a, char b) { return (a >= 'a' && a <= 'z' ? a - 'a' + 'A' : a) == b; });
    if (same) return type->value(i);
  }
  return nullptr;
}

std::string EnumNames(const FieldDescriptor& field) {
  std::string names;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    names += (i == 0 ? "" : ", ") + field.enum_type()->value(i)->name();
  }
  return names;
}

// A number as JSON may write it, also inside a string.
std::optional<double> ParseNumber(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return std::nullopt;  // no "+1", "inf", "nan", " 1"
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Receives the events of nlohmann's parser, which keeps no stack of calls, and puts values where they belong.
class MessageFiller final : public nlohmann::json_sax<nlohmann::json> {
 public:
  MessageFiller(Message& root, const JsonLimits& limits) : root_(root), limits_(limits) {}

  const std::string& error() const { return error_; }

  bool null() override {
    const FieldDescriptor* field = Target();
    if (field == nullptr) return false;
    // Proto3 JSON: the field is absent. An element of a list cannot be.
    if (InList()) return Refuse("null is not allowed inside a list");
    return true;
  }

  bool boolean(bool value) override {
    const FieldDescriptor* field = Target();
    if (field == nullptr) return false;
    if (!Enter(*field)) return false;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL) return Refuse(fmt::format("{} is not {}", value, Kind()));
    if (InList()) {
      Top().message->GetReflection()->AddBool(Top().message, field, value);
    } else {
      Top().message->GetReflection()->SetBool(Top().message, field, value);
    }
    return Done();
  }

  bool number_integer(int64_t value) override { return Whole(value); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return Number(static_cast<double>(value));
    return Whole(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) override { return Number(value); }

  bool string(std::string& value) override {
    const FieldDescriptor* field = Target();
    if (field == nullptr) return false;
    if (!Enter(*field)) return false;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        if (InList()) {
          Top().message->GetReflection()->AddString(Top().message, field, std::move(value));
        } else {
          Top().message->GetReflection()->SetString(Top().message, field, std::move(value));
        }
        return Done();
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* named = FindEnumValue(*field, value);
        if (named == nullptr) return Refuse(fmt::format("{} is none of {}", Quoted(value), EnumNames(*field)));
        return Put(*field, named->number());
      }
      case FieldDescriptor::CPPTYPE_INT32:
      case FieldDescriptor::CPPTYPE_UINT32:
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        const std::optional<double> number = ParseNumber(value);
        if (!number) return Refuse(fmt::format("the string {} is not a number", Quoted(value)));
        return Number(*number);
      }
      default: return Refuse(fmt::format("a string is not {}", Kind()));
    }
  }

  bool binary(nlohmann::json::binary_t&) override { return Refuse("binary values do not exist in JSON"); }

  bool start_object(size_t) override {
    if (stack_.empty()) {
      Push(root_);
      return true;
    }
    const FieldDescriptor* field = Target();
    if (field == nullptr) return false;
    if (!Enter(*field)) return false;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
      return Refuse(fmt::format("an object is not {}", Kind()));
    const auto* reflection = Top().message->GetReflection();
    Push(InList() ? *reflection->AddMessage(Top().message, field) : *reflection->MutableMessage(Top().message, field));
    return DepthFits();
  }

  bool key(std::string& name) override {
    Frame& top = Top();
    top.field = FindField(*top.message->GetDescriptor(), name);
    if (top.field == nullptr) {
      error_ = fmt::format("{}unknown field {}", Prefix(stack_.size() - 1), Quoted(name));
      return false;
    }
    if (!top.seen.insert(top.field->number()).second) return Refuse("given twice");
    return true;
  }

  bool end_object() override {
    stack_.pop_back();
    if (!stack_.empty()) Done();
    return true;
  }

  bool start_array(size_t) override {
    const FieldDescriptor* field = Target();
    if (field == nullptr) return false;
    if (InList()) return Refuse("a list inside a list");
    if (!field->is_repeated()) return Refuse(fmt::format("a list is not {}", Kind()));
    Top().in_list = true;
    Top().index = 0;
    return DepthFits();
  }

  bool end_array() override {
    Top().in_list = false;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& reason) override {
    constexpr int kNumberOutOfRange = 406;
    error_ = reason.id == kNumberOutOfRange ? fmt::format("{}the number is too large", Prefix(stack_.size()))
                                            : fmt::format("the body is not JSON (at byte {})", position);
    return false;
  }

 private:
  struct Frame {
    explicit Frame(Message& filled) : message(&filled) {}

    Message* message;
    const FieldDescriptor* field = nullptr;  // of the key read last
    bool in_list = false;
    size_t index = 0;    // of the element that comes next
    std::set<int> seen;  // numbers of the fields read so far
  };

  Frame& Top() { return stack_.back(); }
  bool InList() const { return stack_.back().in_list; }
  void Push(Message& message) { stack_.emplace_back(message); }

  // Where the value that is being read goes; null with error_ set if there is no such place.
  const FieldDescriptor* Target() {
    if (stack_.empty()) {
      error_ = "the body must be a JSON object";
      return nullptr;
    }
    return Top().field;
  }

  // A value that is not a list begins.
  bool Enter(const FieldDescriptor& field) {
    if (field.is_repeated() && !InList()) return Refuse("must be a list");
    return true;
  }

  bool Done() {
    if (InList()) ++Top().index;
    return true;
  }

  bool DepthFits() {
    size_t depth = stack_.size();
    for (const Frame& frame : stack_) depth += frame.in_list ? 1 : 0;
    if (depth > limits_.depth_max) return Refuse(fmt::format("nested more than {} deep", limits_.depth_max));
    return true;
  }

  // "timings.promptN: " for the innermost `frames` messages' current fields.
  std::string Prefix(size_t frames) const {
    std::string path;
    for (size_t i = 0; i < frames && i < stack_.size(); ++i) {
      const Frame& frame = stack_[i];
      if (frame.field == nullptr) break;
      if (!path.empty()) path += '.';
      path += frame.field->json_name();
      if (frame.in_list) path += fmt::format("[{}]", frame.index);
    }
    return path.empty() ? path : path + ": ";
  }

  bool Refuse(std::string_view why) {
    error_ = Prefix(stack_.size()) + std::string(why);
    return false;
  }

  std::string_view Kind() const {
    switch (stack_.back().field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
      case FieldDescriptor::CPPTYPE_UINT32: return "a whole number";
      case FieldDescriptor::CPPTYPE_DOUBLE: return "a number";
      case FieldDescriptor::CPPTYPE_BOOL: return "true or false";
      case FieldDescriptor::CPPTYPE_STRING: return "a string";
      case FieldDescriptor::CPPTYPE_ENUM: return "the name of a value";
      case FieldDescriptor::CPPTYPE_MESSAGE: return "an object";
      default: return "a value";
    }
  }

  bool Number(double value) {
    const FieldDescriptor* field = Target();
    if (field == nullptr || !Enter(*field)) return false;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      if (InList()) {
        Top().message->GetReflection()->AddDouble(Top().message, field, value);
      } else {
        Top().message->GetReflection()->SetDouble(Top().message, field, value);
      }
      return Done();
    }
    constexpr double kExactMax = 9007199254740992.0;  // 2^53: above it doubles skip whole numbers
    if (std::nearbyint(value) != value) return Refuse(fmt::format("{} is not {}", value, Kind()));
    if (std::fabs(value) > kExactMax) return Refuse(fmt::format("{} is out of range", value));
    return Whole(static_cast<int64_t>(value));
  }

  bool Whole(int64_t value) {
    const FieldDescriptor* field = Target();
    if (field == nullptr || !Enter(*field)) return false;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) break;
        return Put(*field, static_cast<int32_t>(value));
      case FieldDescriptor::CPPTYPE_UINT32: {
        if (value < 0 || value > std::numeric_limits<uint32_t>::max()) break;
        const auto* reflection = Top().message->GetReflection();
        if (InList()) {
          reflection->AddUInt32(Top().message, field, static_cast<uint32_t>(value));
        } else {
          reflection->SetUInt32(Top().message, field, static_cast<uint32_t>(value));
        }
        return Done();
      }
      case FieldDescriptor::CPPTYPE_ENUM:
        if (value < 0 || value > std::numeric_limits<int32_t>::max() ||
            field->enum_type()->FindValueByNumber(static_cast<int>(value)) == nullptr) {
          return Refuse(fmt::format("{} is none of {}", value, EnumNames(*field)));
        }
        return Put(*field, static_cast<int32_t>(value));
      case FieldDescriptor::CPPTYPE_DOUBLE: return Number(static_cast<double>(value));
      default: return Refuse(fmt::format("a number is not {}", Kind()));
    }
    return Refuse(fmt::format("{} is out of range", value));
  }

  // An int32 or the number of an enumeration's value.
  bool Put(const FieldDescriptor& field, int32_t value) {
    Message* message = Top().message;
    const auto* reflection = message->GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      if (InList()) {
        reflection->AddEnumValue(message, &field, value);
      } else {
        reflection->SetEnumValue(message, &field, value);
      }
    } else if (InList()) {
      reflection->AddInt32(message, &field, value);
    } else {
      reflection->SetInt32(message, &field, value);
    }
    return Done();
  }

  Message& root_;
  const JsonLimits limits_;
  std::vector<Frame> stack_;  // messages that are open, outermost first
  std::string error_;
};

}  // namespace

Result<void> ReadJson(std::string_view text, google::protobuf::Message& message, const JsonLimits& limits) {
  // The parser takes a zero byte for the end of its input and would not look at what follows.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("the body is not JSON (at byte {})", zero));
  }
  MessageFiller filler(message, limits);
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &filler)) return {};
  return Fail(ErrorCode::kInvalidArgument, filler.error().empty() ? "the body is not JSON" : filler.error());
}

std::string WriteJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  MP_CHECK(status.ok());  // fails only for Any and Struct, which our messages do not have
  return text;
}

}  // namespace moonpool::bus
