# Writes a C++ source that knows the commit; leaves it untouched if that has not changed.
#
#   cmake -DOUTPUT=source_commit.cc -DSOURCE=checkout -P source_commit.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown")
endif()
set(text "#include \"app/swarm/embedded_files.h\"

namespace moonpool::app {

std::string_view SourceCommit() { return \"${commit}\"; }

}  // namespace moonpool::app
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
