# SPDX-License-Identifier: MIT
# Install rules, the exported CMake package and the pkg-config files. All are relocatable.
include(CMakePackageConfigHelpers)

get_property(targets GLOBAL PROPERTY TOUCHSTONE_EXPORTED_TARGETS)
get_property(headers GLOBAL PROPERTY TOUCHSTONE_PUBLIC_HEADERS)
get_property(tools GLOBAL PROPERTY TOUCHSTONE_INSTALLED_TOOLS)

install(TARGETS ${targets} EXPORT touchstone-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(tools)
  install(TARGETS ${tools} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(DIRECTORY ${headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/touchstone")
install(EXPORT touchstone-targets NAMESPACE touchstone:: DESTINATION "${package_dir}")
# Those that need a further library are exported apart, so that the heap is found without it.
get_property(archives GLOBAL PROPERTY TOUCHSTONE_ARCHIVES)
foreach(archive IN LISTS archives)
  get_property(targets GLOBAL PROPERTY TOUCHSTONE_ARCHIVE_TARGETS_${archive})
  install(TARGETS ${targets} EXPORT touchstone-${archive}-targets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT touchstone-${archive}-targets NAMESPACE touchstone:: DESTINATION "${package_dir}")
endforeach()
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/.cmake/touchstone-config.cmake.in"
  "${PROJECT_BINARY_DIR}/touchstone-config.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/touchstone-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/touchstone-config.cmake"
  "${PROJECT_BINARY_DIR}/touchstone-config-version.cmake"
  DESTINATION "${package_dir}")

# A .pc file a library, found from its own place so that the tree can be moved.
file(RELATIVE_PATH pc_to_prefix
  "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
function(touchstone_install_pc name description requires libs)
  set(pc_name "${name}")
  set(pc_description "${description}")
  set(pc_requires "${requires}")
  set(pc_libs "${libs}")
  configure_file("${PROJECT_SOURCE_DIR}/.cmake/touchstone.pc.in"
    "${PROJECT_BINARY_DIR}/touchstone-${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/touchstone-${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endfunction()
touchstone_install_pc(arch "Machine and instruction-set knowledge" "" "")
touchstone_install_pc(heap "Heap memory for language runtimes" "touchstone-arch" "")
if(TARGET touchstone_jit)
  touchstone_install_pc(jit "Emitted atomics, touch kernels and fast paths" "touchstone-heap" "-lasmjit")
endif()
if(TARGET touchstone_jit_disassembly)
  touchstone_install_pc(jit_disassembly "Emitted code as text" "touchstone-jit capstone" "")
endif()
