#include "bus/keys/quoted_text.h"

#include <gtest/gtest.h>

namespace moonpool::bus {
namespace {

TEST(QuotedText, ShowsPrintableTextAndEscapesTheRest) {
  EXPECT_EQ(QuotedText("general.name"), "\"general.name\"");
  EXPECT_EQ(QuotedText(""), "\"\"");
  EXPECT_EQ(QuotedText("a\n\"\\\xc6)"), "\"a\\x0a\\x22\\x5c\\xc6)\"");
  EXPECT_EQ(QuotedText("abcdef", 3), "\"abc\"...");
}

}  // namespace
}  // namespace moonpool::bus
