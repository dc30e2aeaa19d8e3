/* Reads what the example needs of JSON: one value after the other, in place. */
#ifndef JSON_H
#define JSON_H

#include <stddef.h>
#include <string.h>

/* Where reading is. The text is changed: escapes become what they stand for. */
typedef struct {
    char *at, *end;
} json;

/* Bytes of the text. */
typedef struct {
    char *data;
    size_t len;
} json_slice;

static void json_skip_blanks(json *in) {
    while (in->at < in->end && *in->at != '\0' && strchr(" \t\r\n", *in->at) != NULL)
        in->at++;
}

/* Skips blanks, and then this character if it is there. */
static int json_skip(json *in, char what) {
    json_skip_blanks(in);
    if (in->at == in->end || *in->at != what)
        return 0;
    in->at++;
    return 1;
}

static int json_hex(json *in, unsigned *unit) {
    int i;
    *unit = 0;
    for (i = 0; i < 4; i++, in->at++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = in->at < in->end ? strchr(digits, *in->at | 0x20) : NULL;
        if (digit == NULL || *digit == '\0')
            return 0;
        *unit = *unit * 16 + (unsigned)(digit - digits);
    }
    return 1;
}

/* One escape, behind its backslash; UTF-8 goes to `out`, which is never ahead of the text. */
static int json_escape(json *in, char **out) {
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *name = in->at < in->end ? strchr(names, *in->at) : NULL;
    unsigned point, low;
    if (name != NULL && *name != '\0') {
        in->at++;
        *(*out)++ = meanings[name - names];
        return 1;
    }
    if (in->at == in->end || *in->at++ != 'u' || !json_hex(in, &point))
        return 0;
    if (point >= 0xd800 && point < 0xdc00) {
        if (in->end - in->at < 2 || in->at[0] != '\\' || in->at[1] != 'u')
            return 0;
        in->at += 2;
        if (!json_hex(in, &low) || low < 0xdc00 || low > 0xdfff)
            return 0;
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    if (point < 0x80) {
        *(*out)++ = (char)point;
        return 1;
    }
    if (point >= 0x10000) {
        *(*out)++ = (char)(0xf0 | point >> 18);
        *(*out)++ = (char)(0x80 | (point >> 12 & 0x3f));
    } else if (point >= 0x800) {
        *(*out)++ = (char)(0xe0 | point >> 12);
    }
    if (point >= 0x800)
        *(*out)++ = (char)(0x80 | (point >> 6 & 0x3f));
    else
        *(*out)++ = (char)(0xc0 | point >> 6);
    *(*out)++ = (char)(0x80 | (point & 0x3f));
    return 1;
}

static int json_string(json *in, json_slice *text) {
    char *out;
    if (!json_skip(in, '"'))
        return 0;
    text->data = out = in->at;
    while (in->at < in->end) {
        char byte = *in->at++;
        if (byte == '"') {
            text->len = (size_t)(out - text->data);
            return 1;
        }
        if (byte != '\\')
            *out++ = byte;
        else if (!json_escape(in, &out))
            return 0;
    }
    return 0;
}

/* Skips a value and gives its text, in which nothing is changed. Brackets are counted, so this does
   not find every mistake inside them. */
static int json_value(json *in, json_slice *text) {
    int depth = 0, quoted = 0;
    json_skip_blanks(in);
    text->data = in->at;
    for (; in->at < in->end; in->at++) {
        char byte = *in->at;
        if (quoted) {
            if (byte == '\\' && in->end - in->at > 1)
                in->at++;
            else if (byte == '"')
                quoted = 0;
        } else if (byte == '"') {
            quoted = 1;
        } else if (byte == '{' || byte == '[') {
            depth++;
        } else if ((byte == '}' || byte == ']' || byte == ',') && depth == 0) {
            break;
        } else if (byte == '}' || byte == ']') {
            depth--;
        }
    }
    text->len = (size_t)(in->at - text->data);
    return text->len > 0 && depth == 0 && !quoted;
}

/* The next member of an object, whose value comes next; 0 at its end, -1 if it is none. `first` is
   1 before the first one. */
static int json_member(json *in, json_slice *name, int *first) {
    if (*first ? !json_skip(in, '{') : 0)
        return -1;
    if (json_skip(in, '}'))
        return 0;
    if (!*first && !json_skip(in, ','))
        return -1;
    *first = 0;
    return json_string(in, name) && json_skip(in, ':') ? 1 : -1;
}

#endif
