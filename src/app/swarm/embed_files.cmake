# Writes a C++ source whose functions return the contents of files (see embedded_files.h).
#
#   cmake -DOUTPUT=embedded_files.cc -DTEXTS="a.md;b.md" -DSCRIPT=llama_server.py -P embed_files.cmake

# The value of `variable`: a C++ array of the bytes of the files, one after the other.
function(byte_array variable)
  set(hex "")
  foreach(file IN LISTS ARGN)
    file(READ ${file} bytes HEX)
    string(APPEND hex ${bytes} "0a")
  endforeach()
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," array "${hex}")
  # Lines of 20 bytes, for debuggers and diff.
  string(REPEAT "'.x..'," 20 line)
  string(REGEX REPLACE "(${line})" "\\1\n    " array "${array}")
  set(${variable} "${array}" PARENT_SCOPE)
endfunction()

byte_array(texts ${TEXTS})
byte_array(script ${SCRIPT})
file(WRITE ${OUTPUT} "#include \"app/swarm/embedded_files.h\"

namespace moonpool::app {
namespace {

constexpr char kRepositoryText[] = {
    ${texts}};
constexpr char kLlamaServerScript[] = {
    ${script}};

}  // namespace

std::string_view RepositoryText() { return {kRepositoryText, sizeof(kRepositoryText)}; }
std::string_view LlamaServerScript() { return {kLlamaServerScript, sizeof(kLlamaServerScript)}; }

}  // namespace moonpool::app
")
