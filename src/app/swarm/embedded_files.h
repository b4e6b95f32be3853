// Files of this repository that the binary carries with it, so that it runs away from its checkout too. Written by
// embed_files.cmake when their sources change.
#pragma once

#include <string_view>

namespace moonpool::app {

// The repository's own documentation, one text after the other: what agents read in demos and benchmarks.
std::string_view RepositoryText();
// python/llama_server.py.
std::string_view LlamaServerScript();
// The commit of the sources, "-dirty" behind it if they differ from it; "unknown" outside a checkout.
std::string_view SourceCommit();

}  // namespace moonpool::app
