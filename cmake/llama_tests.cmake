# Tests against a real llama.cpp server. They need the Python environment and the models that `make setup` puts
# under the state root; when these are missing the tests fail and say so, they are never left out.
#
#   moonpool_llama_pytest(NAME bus_e2e SCRIPT bus_e2e_test.py DEPS moonpool_app TIMEOUT 600)
#     A Python unittest program. The path of each target of DEPS is handed over in the environment:
#     MOONPOOL_TARGET_<NAME OF THE TARGET IN CAPITALS>.
#   moonpool_llama_environment(TEST)
#     Gives the same environment to a test made by moonpool_test(LABEL llama ...) in the same folder.
include_guard(GLOBAL)

if(DEFINED ENV{MOONPOOL_STATE})
  set(_state $ENV{MOONPOOL_STATE})
else()
  set(_state ${CMAKE_SOURCE_DIR}/.state)
endif()
set(MOONPOOL_PYTHON ${_state}/venv/bin/python CACHE FILEPATH "Python with xllamacpp; its state root holds the models")

# The state root that MOONPOOL_PYTHON belongs to; it is taken from the interpreter's path, so both always agree.
cmake_path(GET MOONPOOL_PYTHON PARENT_PATH _state)
cmake_path(GET _state PARENT_PATH _state)
cmake_path(GET _state PARENT_PATH MOONPOOL_TEST_STATE)

function(moonpool_llama_environment TEST)
  # Nothing else beside it on two cores: a server that competes for them says nothing about time.
  set_tests_properties(${TEST} PROPERTIES PROCESSORS 2)
  set_property(TEST ${TEST} APPEND PROPERTY ENVIRONMENT
    MOONPOOL_STATE=${MOONPOOL_TEST_STATE}
    MOONPOOL_PYTHON=${MOONPOOL_PYTHON}
    PYTHONPATH=${CMAKE_SOURCE_DIR}/python:${CMAKE_SOURCE_DIR}/tests/llama
    PYTHONDONTWRITEBYTECODE=1)
endfunction()

function(moonpool_llama_pytest)
  cmake_parse_arguments(P "" "NAME;SCRIPT;TIMEOUT" "DEPS" ${ARGN})
  if(NOT P_TIMEOUT)
    set(P_TIMEOUT 600)
  endif()
  add_test(NAME ${P_NAME}
    COMMAND ${CMAKE_SOURCE_DIR}/tests/llama/run_python.sh ${MOONPOOL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${P_SCRIPT} -v)
  set_tests_properties(${P_NAME} PROPERTIES LABELS llama TIMEOUT ${P_TIMEOUT} RESOURCE_LOCK llama_server)
  moonpool_llama_environment(${P_NAME})
  foreach(target IN LISTS P_DEPS)
    string(TOUPPER ${target} capitals)
    set_property(TEST ${P_NAME} APPEND PROPERTY ENVIRONMENT MOONPOOL_TARGET_${capitals}=$<TARGET_FILE:${target}>)
  endforeach()
endfunction()
