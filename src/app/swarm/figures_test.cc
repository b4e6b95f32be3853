#include "app/swarm/figures.h"

#include <gtest/gtest.h>

#include <vector>

namespace moonpool::app {
namespace {

TEST(Figures, MedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{9, 1, 5, 6}), 5.5);
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{7}), 7);
}

TEST(Figures, PercentileIsAValueThatWasMeasured) {
  const std::vector<double> six = {1, 2, 3, 4, 5, 6};
  EXPECT_DOUBLE_EQ(Percentile(six, 95), 6);
  EXPECT_DOUBLE_EQ(Percentile(six, 50), 3);
  EXPECT_DOUBLE_EQ(Percentile(six, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(six, 100), 6);
  std::vector<double> hundred(100);
  for (size_t i = 0; i < hundred.size(); ++i) hundred[i] = static_cast<double>(i + 1);
  EXPECT_DOUBLE_EQ(Percentile(hundred, 95), 95);
}

TEST(Figures, SpreadIsAShareOfTheMedian) {
  EXPECT_DOUBLE_EQ(Spread(std::vector<double>{100, 105, 95}), 0.10);
  EXPECT_DOUBLE_EQ(Spread(std::vector<double>{3, 3}), 0);
  EXPECT_DOUBLE_EQ(Mean(std::vector<double>{100, 105, 98}), 101);
}

TEST(Figures, ReadWell) {
  EXPECT_EQ(WithThousands(0), "0");
  EXPECT_EQ(WithThousands(999), "999");
  EXPECT_EQ(WithThousands(2000), "2,000");
  EXPECT_EQ(WithThousands(1234567), "1,234,567");
  EXPECT_EQ(WithTimeUnit(412.4), "412 ms");
  EXPECT_EQ(WithTimeUnit(7430), "7.43 s");
}

}  // namespace
}  // namespace moonpool::app
