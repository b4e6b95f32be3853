#include "app/swarm/progress_bar.h"

#include <gtest/gtest.h>

#include <memory>

#include "support/fake_clock.h"

namespace moonpool::app {
namespace {

// What a bar wrote so far.
class Paper {
 public:
  Paper() : file_(std::tmpfile()) {}
  ~Paper() { std::fclose(file_); }
  std::FILE* file() { return file_; }
  std::string Text() {
    std::fflush(file_);
    std::string text(static_cast<size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    return text;
  }

 private:
  std::FILE* file_;
};

TEST(ProgressBar, FillsWithTheSteps) {
  EXPECT_EQ(RenderBar("bus", 0, 6, 0, 100), "bus                          [........................]   0/6  0.0 s");
  EXPECT_EQ(RenderBar("bus", 3, 6, 1.26, 100), "bus                          [############............]   3/6  1.3 s");
  EXPECT_EQ(RenderBar("bus", 6, 6, 9, 100), "bus                          [########################]   6/6  9.0 s");
}

TEST(ProgressBar, NeverExceedsTheLineAndTakesOddNumbers) {
  EXPECT_EQ(RenderBar(std::string(200, 'x'), 1, 2, 3, 78).size(), 78u);
  EXPECT_NE(RenderBar("none", 0, 0, 0, 78).find("0/0"), std::string::npos);
  EXPECT_NE(RenderBar("more", 9, 6, 0, 78).find(std::string(24, '#') + "]"), std::string::npos);
}

TEST(ProgressBar, WritesPlainLinesWhereNothingMoves) {
  testing::FakeClock clock;
  Paper paper;
  {
    ProgressBar bar(paper.file(), false, clock);
    bar.Begin("none", 2);
    clock.Advance(std::chrono::seconds(7));
    bar.Step();
  }
  const std::string text = paper.Text();
  EXPECT_EQ(text, RenderBar("none", 0, 2, 0, 78) + "\n" + RenderBar("none", 1, 2, 7, 78) + "\n");
}

TEST(ProgressBar, MovesOnATerminalAndLeavesTheLastState) {
  testing::FakeClock clock;
  Paper paper;
  {
    ProgressBar bar(paper.file(), true, clock);
    bar.Begin("none", 1);
    bar.Step();
  }
  const std::string text = paper.Text();
  EXPECT_TRUE(text.starts_with("\r")) << text;
  EXPECT_TRUE(text.ends_with("\r" + RenderBar("none", 1, 1, 0, 78) + "\x1b[K\n")) << text;
}

}  // namespace
}  // namespace moonpool::app
