// TextTable: rows of text in aligned columns, for terminals. A value; one thread.
#pragma once

#include <string>
#include <vector>

namespace moonpool::app {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns. Control characters are shown as '?': names in a store may be anybody's.
  void Add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // Title line and rows, each with its newline; no blanks at line ends.
  std::string Text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace moonpool::app
