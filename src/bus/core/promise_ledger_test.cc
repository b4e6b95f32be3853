#include "bus/core/promise_ledger.h"

#include <gtest/gtest.h>

namespace moonpool::bus {
namespace {

const PromiseKey kKey{"f", "b1", "ns"};

TEST(PromiseLedger, DeclinesAfterBrokenPromisesInARowAndOnlyThere) {
  PromiseLedger ledger(3, 4);
  ledger.Broken(kKey, 1);
  ledger.Broken(kKey, 1);
  ledger.Kept(kKey);
  ledger.Broken(kKey, 1);
  ledger.Broken(kKey, 1);
  EXPECT_TRUE(ledger.Allows(kKey)) << "a kept promise in between clears the row";
  ledger.Broken(kKey, 1);
  EXPECT_TRUE(ledger.Declined(kKey));
  EXPECT_TRUE(ledger.Allows({"f", "b2", "ns"})) << "another build";
  EXPECT_TRUE(ledger.Allows({"g", "b1", "ns"})) << "another model";
  EXPECT_TRUE(ledger.Allows({"f", "b1", "other"})) << "another namespace: one tenant cannot turn it off for all";
}

TEST(PromiseLedger, TriesEveryNthAgainAndRecoversWithOneKeptPromise) {
  PromiseLedger ledger(3, 4);
  ledger.Broken(kKey, 3);
  int allowed = 0;
  for (int i = 0; i < 8; ++i) allowed += ledger.Allows(kKey);
  EXPECT_EQ(allowed, 2);
  ledger.Kept(kKey);
  EXPECT_TRUE(ledger.Allows(kKey));
  EXPECT_FALSE(ledger.Declined(kKey));
}

TEST(PromiseLedger, StaysBoundedHoweverManyNamespacesComeBy) {
  PromiseLedger ledger(3, 4);
  ledger.Broken(kKey, 3);
  for (int i = 0; i < 10'000; ++i) ledger.Kept({"f", "b1", std::to_string(i)});
  EXPECT_TRUE(ledger.Declined(kKey)) << "a verdict is not pushed out by strangers";
  EXPECT_LE(ledger.Total("f", "b1").kept, 4096u);
}

}  // namespace
}  // namespace moonpool::bus
