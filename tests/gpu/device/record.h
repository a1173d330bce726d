// What the pretended device notes: launches by name, and every copy and wait to a listener.
#pragma once
#include <cstddef>

extern "C" {
// Called with a description and a number of bytes, on the thread that copies or waits.
typedef void (*pretended_listener)(const char* what, long bytes);
void pretended_listen(pretended_listener listener);
void pretended_reset();
long pretended_launches();
const char* pretended_report();  // a line "count<TAB>name" for each kind of launch
void pretended_launch(const char* name);
}

namespace pretended {
void notify(const char* what, long bytes = 0);
long number_from(const char* variable, long otherwise);  // of the environment
double total_bytes();                                    // of a device: PRETENDED_GB
}  // namespace pretended
