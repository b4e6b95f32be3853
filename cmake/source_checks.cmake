# Checks of the sources themselves, as tests:
#   tidy                    tools/tidy.py finds nothing
#   tidy_self_test          ... and would find it
#   run_tests_self_test     the test plan counts what it skipped
#   headers_compile_alone   every header of src/ and include/ includes what it uses
# They say the same in every preset, so only the plain one (dev) runs them.
if(MOONPOOL_SANITIZE OR MOONPOOL_FUZZ OR MOONPOOL_ANALYZE)
  return()
endif()

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME tidy COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/tidy.py)
add_test(NAME tidy_self_test COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/tidy_test.py)
add_test(NAME run_tests_self_test COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/run_tests_test.py)
set_tests_properties(tidy tidy_self_test run_tests_self_test
  PROPERTIES LABELS unit TIMEOUT 120 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)

# The objects are a target of their own outside `all`: the test builds it, and a second run compiles what changed.
# Headers that need generated protobuf code are compiled by their module only.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.h ${CMAKE_SOURCE_DIR}/include/*.h)
set(sources "")
foreach(header IN LISTS headers)
  file(STRINGS ${header} generated REGEX "#include .*\\.pb\\.h")
  if(generated)
    continue()
  endif()
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
  string(REGEX REPLACE "^(src|include)/" "" name ${name})
  string(REPLACE "/" "." source ${name})
  set(source ${CMAKE_BINARY_DIR}/header_check/${source}.cc)
  # Twice: the second must be a no-op.
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${name}\"\n#include \"${name}\"\n")
  list(APPEND sources ${source})
endforeach()
add_library(moonpool_header_check OBJECT EXCLUDE_FROM_ALL ${sources})
target_link_libraries(moonpool_header_check PRIVATE moonpool_options)
# Fixtures beside their tests use what tests share.
target_include_directories(moonpool_header_check PRIVATE ${CMAKE_SOURCE_DIR}/tests)
target_compile_options(moonpool_header_check PRIVATE -O0 -g0)
add_test(NAME headers_compile_alone
  COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target moonpool_header_check -j 2)
set_tests_properties(headers_compile_alone PROPERTIES LABELS unit TIMEOUT 600 PROCESSORS 2)
