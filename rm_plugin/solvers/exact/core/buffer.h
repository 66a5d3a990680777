/* Arrays that Python lends for a call, as copies that stay. */
#ifndef THEMIS_BUFFER_H
#define THEMIS_BUFFER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

/* NULL without memory. */
static inline void *copy_of(const Py_buffer *buffer) {
    void *copy = malloc(buffer->len ? buffer->len : 1);
    if (copy) memcpy(copy, buffer->buf, buffer->len);
    return copy;
}

#endif
