#include "app/swarm/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace moonpool::app {
namespace {

constexpr size_t kColumns = 78;
constexpr size_t kCells = 24;
constexpr Duration kFrame = std::chrono::milliseconds(200);

}  // namespace

std::string RenderBar(const std::string& title, size_t done, size_t total, double seconds, size_t columns) {
  const size_t filled = total == 0 ? 0 : std::min(kCells, done * kCells / total);
  std::string line = fmt::format("{:<28} [{}{}] {:>3}/{}  {:.1f} s", title, std::string(filled, '#'),
                                 std::string(kCells - filled, '.'), done, total, seconds);
  if (line.size() > columns) line.resize(columns);
  return line;
}

ProgressBar::ProgressBar(std::FILE* out, bool moving, const Clock& clock) : out_(out), moving_(moving), clock_(clock) {
  if (moving_) thread_ = std::thread([this] { KeepMoving(); });
}

ProgressBar::~ProgressBar() {
  {
    MutexLock lock(mutex_);
    EndLine();
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ProgressBar::Begin(std::string title, size_t steps) {
  MutexLock lock(mutex_);
  EndLine();
  title_ = std::move(title);
  done_ = 0;
  total_ = steps;
  begun_ = clock_.Now();
  Draw();
}

void ProgressBar::Step() {
  MutexLock lock(mutex_);
  ++done_;
  Draw();
}

void ProgressBar::KeepMoving() {
  MutexLock lock(mutex_);
  while (!ending_) {
    clock_.WaitUntil(changed_, mutex_, clock_.Now() + kFrame);
    if (!ending_ && !title_.empty() && done_ < total_) Draw();
  }
}

void ProgressBar::Draw() {
  const std::string line = RenderBar(title_, done_, total_, ToSeconds(clock_.Now() - begun_), kColumns);
  std::fprintf(out_, moving_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
  std::fflush(out_);
}

void ProgressBar::EndLine() {
  if (moving_ && !title_.empty()) std::fputc('\n', out_);
  title_.clear();
}

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

}  // namespace moonpool::app
