# SPDX-License-Identifier: MIT
# touchstone_add_library(NAME folder SOURCES ... [DEPENDS other...] [PRIVATE_LIBRARIES ...])
#
# Compiles the sources once, position-independent, and makes of them a shared library with a SONAME
# (touchstone::NAME) and a static one (touchstone::NAME_static). DEPENDS names other libraries made
# this way. Headers under include/ are public; those under src/ are seen by this library alone.
function(touchstone_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;PRIVATE_LIBRARIES")
  set(objects touchstone_${name}_objects)
  add_library(${objects} OBJECT ${arg_SOURCES})
  target_include_directories(${objects}
    PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/include" PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  target_compile_features(${objects} PUBLIC cxx_std_23)
  target_link_libraries(${objects} PRIVATE touchstone_build_flags)
  foreach(dependency IN LISTS arg_DEPENDS)
    target_include_directories(${objects}
      PUBLIC $<TARGET_PROPERTY:touchstone_${dependency},INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()

  foreach(kind SHARED STATIC)
    set(target touchstone_${name})
    set(suffix "")
    if(kind STREQUAL STATIC)
      set(suffix _static)
    endif()
    string(APPEND target "${suffix}")
    add_library(${target} ${kind} $<TARGET_OBJECTS:${objects}>)
    add_library(touchstone::${name}${suffix} ALIAS ${target})
    target_include_directories(${target} PUBLIC
      "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>"
      "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    target_compile_features(${target} PUBLIC cxx_std_23)
    set_target_properties(${target} PROPERTIES
      OUTPUT_NAME touchstone_${name}
      EXPORT_NAME ${name}${suffix}
      LINKER_LANGUAGE CXX
      VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    foreach(dependency IN LISTS arg_DEPENDS)
      target_link_libraries(${target} PUBLIC touchstone_${dependency}${suffix})
    endforeach()
    target_link_libraries(${target} PRIVATE
      $<BUILD_INTERFACE:touchstone_build_flags> ${arg_PRIVATE_LIBRARIES})
    set_property(GLOBAL APPEND PROPERTY TOUCHSTONE_EXPORTED_TARGETS ${target})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TOUCHSTONE_PUBLIC_HEADERS "${CMAKE_CURRENT_SOURCE_DIR}/include/")
endfunction()

# touchstone_add_archive(NAME SOURCES ... [DEPENDS other...] [LIBRARIES ...])
#
# For what stands on a library that exists as a static, position-dependent archive only: compiles the
# sources once into archives that link into executables, never into a shared library. touchstone::NAME
# uses the shared libraries it depends on, touchstone::NAME_static the static ones. DEPENDS names
# libraries or archives of the project; LIBRARIES are imported targets that consumers link too. Each is
# a component of the CMake package, there where the imported targets are.
function(touchstone_add_archive name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LIBRARIES")
  set(objects touchstone_${name}_objects)
  add_library(${objects} OBJECT ${arg_SOURCES})
  target_include_directories(${objects}
    PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/include" PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  target_compile_features(${objects} PUBLIC cxx_std_23)
  target_link_libraries(${objects} PRIVATE touchstone_build_flags ${arg_LIBRARIES})
  foreach(dependency IN LISTS arg_DEPENDS)
    target_include_directories(${objects}
      PUBLIC $<TARGET_PROPERTY:touchstone_${dependency},INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()

  foreach(suffix "" _static)
    set(target touchstone_${name}${suffix})
    add_library(${target} STATIC $<TARGET_OBJECTS:${objects}>)
    add_library(touchstone::${name}${suffix} ALIAS ${target})
    target_include_directories(${target} PUBLIC
      "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>"
      "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    target_compile_features(${target} PUBLIC cxx_std_23)
    set_target_properties(${target} PROPERTIES
      EXPORT_NAME ${name}${suffix}
      LINKER_LANGUAGE CXX)
    foreach(dependency IN LISTS arg_DEPENDS)
      target_link_libraries(${target} PUBLIC touchstone_${dependency}${suffix})
    endforeach()
    target_link_libraries(${target}
      PUBLIC ${arg_LIBRARIES} PRIVATE $<BUILD_INTERFACE:touchstone_build_flags>)
    set_property(GLOBAL APPEND PROPERTY TOUCHSTONE_ARCHIVE_TARGETS_${name} ${target})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TOUCHSTONE_ARCHIVES ${name})
  get_property(headers GLOBAL PROPERTY TOUCHSTONE_PUBLIC_HEADERS)
  if(NOT "${CMAKE_CURRENT_SOURCE_DIR}/include/" IN_LIST headers)
    set_property(GLOBAL APPEND PROPERTY
      TOUCHSTONE_PUBLIC_HEADERS "${CMAKE_CURRENT_SOURCE_DIR}/include/")
  endif()
endfunction()

# touchstone_add_tool(NAME SOURCES ... [LIBRARIES ...])
#
# A command-line tool in bin/, linked with the static libraries so that it can be copied alone. Its manual
# page, NAME.1, is beside its sources.
function(touchstone_add_tool name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE touchstone_build_flags ${arg_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY TOUCHSTONE_INSTALLED_TOOLS ${name})
  set_property(GLOBAL APPEND PROPERTY TOUCHSTONE_MANUAL_PAGES "${CMAKE_CURRENT_SOURCE_DIR}/${name}.1")
  if(TOUCHSTONE_INSTALL)
    install(FILES ${name}.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  endif()
endfunction()
