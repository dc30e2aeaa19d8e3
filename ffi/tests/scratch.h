/* A directory that goes away with its test; in C and C++. After check.h or check.hpp. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <stdio.h>
#include <stdlib.h>

enum { SCRATCH_BYTES = 512 };

/* Makes one where the system has such, and puts its name into `dir`: mkdtemp puts letters of its own in
   the place of the six X. */
static inline void make_scratch(char dir[SCRATCH_BYTES]) {
    const char *where = getenv("TMPDIR");
    const int len = snprintf(dir, SCRATCH_BYTES, "%s/slipring-XXXXXX",
                             where != NULL && *where != 0 ? where : "/tmp");
    CHECK(len > 0 && len < SCRATCH_BYTES && mkdtemp(dir) != NULL);
}

static inline void remove_scratch(const char *dir) {
    char command[SCRATCH_BYTES + 16];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    CHECK(system(command) == 0);
}

#endif
