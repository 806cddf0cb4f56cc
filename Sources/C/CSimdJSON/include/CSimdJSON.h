// A C face for simdjson's on-demand parser; imported by JSON only.
//
// One call turns a document into a flat table of nodes, so that the caller walks it without
// another call per value. simdjson finds the structure and unescapes strings; what on-demand
// leaves open (number grammar, literals, depth, trailing bytes) is checked here.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum csimdjson_kind {
    csimdjson_null = 0,
    csimdjson_false = 1,
    csimdjson_true = 2,
    csimdjson_number = 3,
    csimdjson_string = 4,
    csimdjson_array = 5,
    csimdjson_object = 6,
    // The name of an object's member; the member's value is the node behind it.
    csimdjson_key = 7,
};

// One value or member name. Nodes stand in document order; a container's children follow it.
typedef struct csimdjson_node {
    // Strings and keys: the unescaped UTF-8. Everything else: the text as it stands.
    const uint8_t *text;
    // The value as it stands in the document, a string with its quotes.
    const uint8_t *source;
    uint32_t text_length;
    uint32_t source_length;
    // The index of the node behind this value; for a key, behind the member's value.
    uint32_t next;
    // Containers: elements, or members with repeated names counted as often as they stand. Keys:
    // length << 16 | first byte << 8 | last byte of the name, 0 for the empty one.
    uint32_t count;
    uint32_t kind;
} csimdjson_node;

enum csimdjson_status {
    csimdjson_ok = 0,
    csimdjson_empty = 1,
    csimdjson_too_large = 2,
    csimdjson_too_deep = 3,
    csimdjson_bad_utf8 = 4,
    csimdjson_bad_number = 5,
    csimdjson_bad_string = 6,
    csimdjson_syntax = 7,
    csimdjson_trailing = 8,
    csimdjson_out_of_memory = 9,
};

typedef struct csimdjson_result {
    int32_t status;
    // Where the document stopped being JSON; -1 when unknown.
    int64_t offset;
    // The document's nodes, the root first. Like every pointer in them, owned by the parser and
    // valid until its next parse.
    const csimdjson_node *nodes;
} csimdjson_result;

typedef struct csimdjson_parser csimdjson_parser;

// A parser for documents of up to max_bytes bytes and max_depth nested containers; NULL when
// there is no memory. max_bytes is below 2^31. One thread at a time.
csimdjson_parser *csimdjson_create(size_t max_bytes, uint32_t max_depth);
void csimdjson_destroy(csimdjson_parser *parser);

// Parses a copy of the bytes, which therefore need no padding and may be freed afterwards.
csimdjson_result csimdjson_parse(csimdjson_parser *parser, const uint8_t *bytes, size_t length);

#ifdef __cplusplus
}
#endif
