#include "bus/arbiter/rate_estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>

namespace moonpool::bus {
namespace {

constexpr RateEstimate::Tuning kTuning{};

RateEstimate After(std::initializer_list<double> rates) {
  RateEstimate estimate;
  for (const double rate : rates) estimate.Observe(rate, kTuning);
  return estimate;
}

TEST(RateEstimate, IsZeroWithoutSamplesAndSeededByTheFirst) {
  EXPECT_EQ(After({}).Value(), 0);
  EXPECT_EQ(After({250}).Value(), 250);
}

TEST(RateEstimate, ABadFirstSampleIsOutvotedByTheThird) {
  EXPECT_DOUBLE_EQ(After({1300, 100}).Value(), std::sqrt(1300.0 * 100));
  EXPECT_EQ(After({1300, 100, 101}).Value(), 101);
  EXPECT_EQ(After({1, 100, 101}).Value(), 100);
}

TEST(RateEstimate, TwiceUpAndTwiceDownCancel) {
  EXPECT_GT(After({100, 100, 100, 200}).Value(), 120);
  EXPECT_NEAR(After({100, 100, 100, 200, 200}).Value() * After({100, 100, 100, 50, 50}).Value(), 100.0 * 100, 1e-6);
}

// B60, class C14: the influence of one sample is bounded; an outlier has none.
TEST(RateEstimate, OneSampleMovesItByAtMostTheStatedFactor) {
  EXPECT_LE(After({100, 100, 100, 399}).Value(), 152);
  EXPECT_GE(After({100, 100, 100, 26}).Value(), 100 / 1.52);
  EXPECT_EQ(After({100, 100, 100, 1300}).Value(), 100);
  EXPECT_EQ(After({100, 100, 100, 0.1}).Value(), 100);
  EXPECT_EQ(After({100, 100, 100, 1300, 1300}).Value(), 100);
}

TEST(RateEstimate, ThreeAgreeingOutliersInARowAreBelieved) {
  EXPECT_EQ(After({100, 100, 100, 1000, 1200, 1100}).Value(), 1100);
  EXPECT_EQ(After({100, 100, 100, 10, 12, 11}).Value(), 11);
}

TEST(RateEstimate, OutliersThatDisagreeOrAreInterruptedAreNotBelieved) {
  EXPECT_EQ(After({100, 100, 100, 1000, 10, 1000}).Value(), 100);
  EXPECT_EQ(After({100, 100, 100, 1000, 1000, 100, 1000, 1000}).Value(), 100);
  // The window slides: what disagreed first is forgotten when three later ones agree.
  EXPECT_EQ(After({100, 100, 100, 10, 1000, 1000, 1000}).Value(), 1000);
}

TEST(RateEstimate, FollowsASlowDriftOverAnyDistance) {
  RateEstimate estimate;
  double rate = 100;
  for (int i = 0; i < 200; ++i) estimate.Observe(rate *= 1.05, kTuning);
  EXPECT_NEAR(estimate.Value() / rate, 1, 0.15);
}

}  // namespace
}  // namespace moonpool::bus
