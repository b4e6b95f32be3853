// Machine: what a figure was measured on, because without that it says nothing. A value.
#pragma once

#include <string>

namespace moonpool::app {

struct Machine {
  std::string cpu{};  // the model's name
  unsigned cores = 0;
  double load_average = 0;      // of the last minute, when it was asked
  double load_average_end = 0;  // of the last minute of the run; set by NoteEnd
  std::string commit{};

  static Machine Here();
  void NoteEnd();
  // One line for people.
  std::string Describe() const;
};

}  // namespace moonpool::app
