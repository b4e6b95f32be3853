#include "app/text_table.h"

#include <algorithm>

#include "base/check.h"

namespace moonpool::app {
namespace {

// Columns that a terminal needs for UTF-8 text; close enough for names.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

void TextTable::Add(std::vector<std::string> cells) {
  MP_CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) {
    std::replace_if(
        cell.begin(), cell.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, '?');
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::Text() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = Width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, Width(row[i]));
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string pad(widths[i] - Width(cell), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].align == Align::kRight ? pad + cell : cell + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&](size_t i) -> const std::string& { return row[i]; });
  return text;
}

}  // namespace moonpool::app
