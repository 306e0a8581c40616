// SPDX-License-Identifier: MIT
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <touchstone.h>

#include <touchstone/heap/object_header.h>

#include "c_api_cases.h"

namespace {

using touchstone::heap::ObjectHeader;

struct Case {
  std::string language;
  const c_api_case* test;
};

class CApi : public ::testing::TestWithParam<Case> {};

TEST_P(CApi, Holds) {
  c_api_report report{};
  GetParam().test->run(&report);
  EXPECT_EQ(report.failures, 0) << report.text;
}

std::vector<Case> cases(const char* language, const c_api_case* first) {
  std::vector<Case> all;
  for (const c_api_case* each = first; each->name != nullptr; ++each) {
    all.push_back({language, each});
  }
  return all;
}
std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return info.param.test->name;
}
INSTANTIATE_TEST_SUITE_P(AsC, CApi, ::testing::ValuesIn(cases("C", c_api_cases_as_c)), name_of);
INSTANTIATE_TEST_SUITE_P(AsCpp, CApi, ::testing::ValuesIn(cases("C++", c_api_cases_as_cpp)),
                         name_of);

TEST(CApiHeader, IsWhatTheObjectModelReads) {
  EXPECT_EQ(ts_header_record(24, 2), ObjectHeader::record(24, 2).word());
  EXPECT_EQ(ts_header_array(7), ObjectHeader::array(7).word());
  EXPECT_EQ(ts_header_ephemeron(48, 1),
            ObjectHeader::make(ObjectHeader::Kind::kEphemeron, 48, 1).word());
  EXPECT_EQ(ts_header_weak(16, 0), ObjectHeader::make(ObjectHeader::Kind::kWeak, 16).word());
  EXPECT_EQ(TS_HEADER_MAX_SIZE, ObjectHeader::kMaxSize);
  EXPECT_EQ(TS_HEADER_MAX_REFERENCES, ObjectHeader::kMaxReferences);
}

TEST(CApiHeader, StatisticsAreJson) {
  ts_heap_options options = ts_heap_options_init();
  options.max_size = std::size_t{32} << 20U;
  ts_heap* heap = nullptr;
  ASSERT_EQ(ts_heap_create(&options, &heap, nullptr), TS_OK);
  std::size_t length = 0;
  ASSERT_EQ(ts_get_statistics_json(heap, nullptr, 0, &length, nullptr), TS_OK);
  std::string text(length + 1, 'x');
  ASSERT_EQ(ts_get_statistics_json(heap, text.data(), text.size(), nullptr, nullptr), TS_OK);
  ASSERT_EQ(text.back(), '\0');
  text.pop_back();
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("max_size"), options.max_size);
  EXPECT_EQ(ts_heap_destroy(heap, nullptr), TS_OK);
}

}  // namespace
