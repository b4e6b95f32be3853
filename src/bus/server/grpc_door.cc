#include "bus/server/grpc_door.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "bus/server/rpc_code.h"
#include "bus/server/utf8_text.h"
#include "kvcache_bus.grpc.pb.h"
#include "net/unix_socket_path.h"

namespace moonpool::bus {
namespace {

constexpr char kServiceName[] = "moonpool.v1.KVCacheBus";

grpc::Status ToStatus(const Error& error) {
  return {static_cast<grpc::StatusCode>(RpcCodeOf(error.code)), Utf8Text(error.message)};
}

// One call from its arrival to its end. The library calls OnCancel and OnDone; the work runs in a lane and ends with
// Finish, after which the object may be gone.
template <class Reply>
class Call final : public grpc::ServerUnaryReactor {
 public:
  // `work` is given a question, whether the client has gone, and fills `reply`.
  using Work = std::function<Result<Reply>(const std::function<bool()>& cancelled)>;

  static grpc::ServerUnaryReactor* Start(BusCalls& calls, WorkLanes& lanes, Verb verb, Reply* reply, Work work) {
    auto* call = new Call(reply, std::move(work));  // deletes itself in OnDone
    if (!lanes.Post(verb, [call] { call->Run(); })) {
      calls.CountRejected(verb);
      call->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls are waiting; try again later"});
    }
    return call;
  }
  static grpc::ServerUnaryReactor* Refuse(grpc::StatusCode code, const std::string& why) {
    auto* call = new Call(nullptr, nullptr);
    call->Finish({code, why});
    return call;
  }

 private:
  Call(Reply* reply, Work work) : reply_(reply), work_(std::move(work)) {}

  void Run() {
    if (cancelled_) {
      Finish({grpc::StatusCode::CANCELLED, "the client has gone"});
      return;
    }
    Result<Reply> result = work_([this] { return cancelled_.load(); });
    if (!result) {
      Finish(ToStatus(result.error()));
      return;
    }
    *reply_ = std::move(*result);
    Finish(grpc::Status::OK);
  }

  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { delete this; }

  Reply* const reply_;  // the library's, until OnDone
  const Work work_;
  std::atomic<bool> cancelled_{false};  // written by the library's thread, read by the lane's
};

class Service final : public v1::KVCacheBus::CallbackService {
 public:
  Service(BusCalls& calls, const AccessPolicy& access, WorkLanes& lanes)
      : calls_(calls), access_(access), lanes_(lanes) {}

  grpc::ServerUnaryReactor* Lookup(grpc::CallbackServerContext* context, const v1::PromptRequest* request,
                                   v1::LookupReply* reply) override {
    return Serve<v1::LookupReply>(*context, Verb::kLookup, reply, [this, request](const Caller& caller, const auto&) {
      return calls_.Lookup(*request, caller);
    });
  }
  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context, const v1::PromptRequest* request,
                                    v1::PrepareReply* reply) override {
    return Serve<v1::PrepareReply>(*context, Verb::kPrepare, reply,
                                   [this, request](const Caller& caller, const auto& cancelled) {
                                     return calls_.Prepare(*request, caller, cancelled);
                                   });
  }
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context, const v1::CommitRequest* request,
                                   v1::CommitReply* reply) override {
    return Serve<v1::CommitReply>(*context, Verb::kCommit, reply, [this, request](const Caller& caller, const auto&) {
      return calls_.Commit(*request, caller);
    });
  }
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context, const v1::ReleaseRequest* request,
                                    v1::ReleaseReply* reply) override {
    return Serve<v1::ReleaseReply>(*context, Verb::kRelease, reply, [this, request](const Caller& caller, const auto&) {
      return calls_.Release(*request, caller);
    });
  }

 private:
  template <class Reply, class Verbatim>
  grpc::ServerUnaryReactor* Serve(grpc::CallbackServerContext& context, Verb verb, Reply* reply, Verbatim call) {
    const std::optional<Caller> caller = access_.Admit(VisitorOf(context));
    if (!caller) {
      return Call<Reply>::Refuse(grpc::StatusCode::UNAUTHENTICATED,
                                 "a valid token is needed: authorization: Bearer TOKEN");
    }
    return Call<Reply>::Start(
        calls_, lanes_, verb, reply,
        [caller = *caller, call](const std::function<bool()>& cancelled) { return call(caller, cancelled); });
  }

  static Visitor VisitorOf(const grpc::CallbackServerContext& context) {
    Visitor visitor;
    // The peer's name comes from the socket, not from the client.
    const bool is_unix = context.peer().starts_with("unix:");
    visitor.listener = is_unix ? Listener::kGrpcUnix : Listener::kGrpcTcp;
    // The socket's mode lets in its owner and root, who may be anybody anyway.
    if (is_unix) visitor.peer_uid = geteuid();
    const auto& metadata = context.client_metadata();
    if (const auto found = metadata.find("authorization"); found != metadata.end()) {
      visitor.authorization = std::string_view(found->second.data(), found->second.size());
    }
    return visitor;
  }

  BusCalls& calls_;
  const AccessPolicy& access_;
  WorkLanes& lanes_;
};

// The library's own lines go where ours go. Process-wide by its design; set once.
void RouteLibraryLog() {
  static const bool routed = [] {
    gpr_set_log_function([](gpr_log_func_args* entry) {
      // The library calls failures of single clients errors; nobody must act on them.
      log::Debug("grpc_log text=\"{}\"", entry->message);
    });
    return true;
  }();
  (void)routed;
}

// "127.0.0.1:80", "[::1]:80"
std::string HostAndPort(const std::string& address, uint16_t port) {
  return address.find(':') == address.npos ? fmt::format("{}:{}", address, port)
                                           : fmt::format("[{}]:{}", address, port);
}

// Whether this process could listen there: the library says only that it could not.
Result<void> TryBind(const std::string& address, uint16_t port) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  const sockaddr* where = nullptr;
  socklen_t size = 0;
  if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    where = reinterpret_cast<const sockaddr*>(&v4);
    size = sizeof v4;
  } else if (inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    where = reinterpret_cast<const sockaddr*>(&v6);
    size = sizeof v6;
  } else {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("grpc address {} is not a numeric address", address));
  }
  const int descriptor = socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return Fail(ErrorCode::kIo, "cannot make a socket");
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int error = bind(descriptor, where, size) == 0 && listen(descriptor, 1) == 0 ? 0 : errno;
  close(descriptor);
  if (error == 0) return {};
  const ErrorCode code = error == EADDRINUSE ? ErrorCode::kAlreadyExists
                         : error == EACCES   ? ErrorCode::kPermission
                                             : ErrorCode::kInvalidArgument;
  return Fail(code, fmt::format("cannot listen on grpc address {}: {}", HostAndPort(address, port),
                                std::error_code(error, std::generic_category()).message()));
}

// A path inside the library's "unix:" addresses, which are URIs.
std::string UriPath(std::string_view path) {
  std::string text;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/._-~").find(c) != std::string_view::npos;
    text += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return text;
}

}  // namespace

class GrpcDoor::Impl {
 public:
  Impl(BusCalls& calls, const AccessPolicy& access, WorkLanes& lanes) : service_(calls, access, lanes) {}
  ~Impl() { Stop(Duration::zero()); }

  Result<void> Start(const GrpcDoorOptions& options) {
    RouteLibraryLog();
    grpc::EnableDefaultHealthCheckService(true);
    static const bool reflection = (grpc::reflection::InitProtoReflectionServerBuilderPlugin(), true);
    (void)reflection;

    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes_max));
    builder.SetMaxSendMessageSize(-1);
    grpc::ResourceQuota quota("moonpool.grpc");
    quota.Resize(options.memory_bytes_max);
    builder.SetResourceQuota(quota);
    builder.RegisterService(&service_);

    if (!options.unix_socket_path.empty()) {
      auto guard = net::UnixSocketGuard::Acquire(options.unix_socket_path);
      if (!guard) return Fail(guard.error());
      guard_.emplace(std::move(*guard));
      builder.AddListeningPort("unix:" + UriPath(guard_->BindPath()), grpc::InsecureServerCredentials());
    }
    int bound_port = 0;
    if (!options.address.empty()) {
      MP_RETURN_IF_ERROR(TryBind(options.address, options.port));
      builder.AddListeningPort(HostAndPort(options.address, options.port), grpc::InsecureServerCredentials(),
                               &bound_port);
    }
    server_ = builder.BuildAndStart();
    if (!server_ || (!options.address.empty() && bound_port == 0)) {
      return Fail(ErrorCode::kIo,
                  fmt::format("grpc cannot listen on {}{}{}", options.unix_socket_path,
                              options.unix_socket_path.empty() ? "" : " ",
                              options.address.empty() ? "" : HostAndPort(options.address, options.port)));
    }
    port_ = static_cast<uint16_t>(bound_port);
    if (guard_) MP_RETURN_IF_ERROR(guard_->Publish());
    return {};
  }

  uint16_t port() const { return port_; }

  void SetServing(bool serving) {
    if (auto* health = server_->GetHealthCheckService()) {
      health->SetServingStatus(serving);
      health->SetServingStatus(kServiceName, serving);
    }
  }

  void Stop(Duration grace) {
    if (!server_) return;
    if (guard_) guard_->Unpublish();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::microseconds>(grace));
    server_->Wait();
    server_.reset();
    guard_.reset();
  }

 private:
  Service service_;
  std::optional<net::UnixSocketGuard> guard_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
};

GrpcDoor::GrpcDoor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcDoor::~GrpcDoor() = default;

Result<std::unique_ptr<GrpcDoor>> GrpcDoor::Start(const GrpcDoorOptions& options, BusCalls& calls,
                                                  const AccessPolicy& access, WorkLanes& lanes) {
  auto impl = std::make_unique<Impl>(calls, access, lanes);
  MP_RETURN_IF_ERROR(impl->Start(options));
  return std::unique_ptr<GrpcDoor>(new GrpcDoor(std::move(impl)));
}

uint16_t GrpcDoor::port() const { return impl_->port(); }
void GrpcDoor::SetServing(bool serving) { impl_->SetServing(serving); }
void GrpcDoor::Stop(Duration grace) { impl_->Stop(grace); }

}  // namespace moonpool::bus
