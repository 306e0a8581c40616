# SPDX-License-Identifier: MIT
# Precompiled headers of the large header-only libraries, which cost more to read than the files that
# include them. Only what is named here is in them: a file still includes what it uses.
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without.
#
# touchstone_precompile(NAME KIND HEADERS ... LIBRARIES ...)
#
# KIND is LIBRARY or PROGRAM, what the users of it are: their code models differ.
function(touchstone_precompile name kind)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "HEADERS;LIBRARIES")
  set(target touchstone_precompiled_${name})
  set(source "${CMAKE_BINARY_DIR}/precompiled/${name}.cpp")
  if(kind STREQUAL PROGRAM)
    file(CONFIGURE OUTPUT "${source}" CONTENT "int main() {}\n")
    add_executable(${target} "${source}")
    set_target_properties(${target} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/precompiled")
  else()
    file(CONFIGURE OUTPUT "${source}" CONTENT "")
    add_library(${target} OBJECT "${source}")
  endif()
  target_link_libraries(${target} PRIVATE touchstone_build_flags ${arg_LIBRARIES})
  target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
endfunction()

# touchstone_use_precompiled(TARGET NAME), called where the target is made. Its C sources do without.
function(touchstone_use_precompiled target name)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.c$")
  set_source_files_properties(${sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  target_precompile_headers(${target} REUSE_FROM touchstone_precompiled_${name})
endfunction()
