// SPDX-License-Identifier: MIT
// NOLINTNEXTLINE(bugprone-suspicious-include): the same as C++
#include "c_api_cases.c"
