// The walk over simdjson's on-demand values that fills the node table.
//
// On-demand checks lazily: it hands out the raw tokens of numbers and literals unchecked and
// does not look behind the root. Every value is therefore consumed here, tokens are matched
// against the grammar of RFC 8259, and the walk counts depth itself; its recursion is bounded by
// that limit.
#define NDEBUG 1
#define SIMDJSON_EXCEPTIONS 0
#include "CSimdJSON.h"

#include <simdjson.h>

#include <cstdlib>
#include <cstring>
#include <new>

using namespace simdjson;

namespace {

// The smallest buffer, and the smallest node table: both grow by doubling. Small, because a
// program may keep a parser for each of thousands of documents.
constexpr size_t minimum_bytes = 1024;
constexpr uint32_t minimum_nodes = 64;

inline bool is_space(uint8_t byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

inline bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

// number = [ "-" ] ( "0" / digit1-9 *digit ) [ "." 1*digit ] [ ( "e" / "E" ) [ "-" / "+" ] 1*digit ]
bool is_number(const uint8_t *at, const uint8_t *end) {
    if (at < end && *at == '-') at++;
    if (at == end || !is_digit(*at)) return false;
    if (*at++ != '0') {
        while (at < end && is_digit(*at)) at++;
    }
    if (at < end && *at == '.') {
        at++;
        if (at == end || !is_digit(*at)) return false;
        while (at < end && is_digit(*at)) at++;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '-' || *at == '+')) at++;
        if (at == end || !is_digit(*at)) return false;
        while (at < end && is_digit(*at)) at++;
    }
    return at == end;
}

// Surrogates have no UTF-8; simdjson lets a lone low one through as three bytes. The document
// itself is well-formed UTF-8, so such bytes can only come from an escape.
bool has_surrogate(const uint8_t *at, size_t length) {
    const uint8_t *end = at + length;
    while (at + 2 < end) {
        at = static_cast<const uint8_t *>(memchr(at, 0xED, static_cast<size_t>(end - at - 2)));
        if (at == nullptr) return false;
        if (at[1] >= 0xA0) return true;
        at++;
    }
    return false;
}

// Few bytes that tell most names apart: the length and the first and last byte.
inline uint32_t name_tag(const uint8_t *name, size_t length) {
    if (length == 0) return 0;
    return static_cast<uint32_t>(length) << 16 | static_cast<uint32_t>(name[0]) << 8
        | name[length - 1];
}

}  // namespace

struct csimdjson_parser {
    size_t max_bytes;
    uint32_t max_depth;
    uint8_t *buffer = nullptr;
    size_t capacity = 0;
    csimdjson_node *nodes = nullptr;
    uint32_t node_capacity = 0;
    uint32_t node_count = 0;
    // The start of the token looked at last: where an error is reported.
    const uint8_t *cursor = nullptr;
    // Unescaped strings of the document; no longer together than the document itself.
    uint8_t *strings = nullptr;
    size_t strings_capacity = 0;
    size_t strings_length = 0;

    csimdjson_parser(size_t bytes, uint32_t depth) : max_bytes(bytes), max_depth(depth) {}
    ~csimdjson_parser() {
        free(buffer);
        free(nodes);
        free(strings);
    }

    bool make_room(size_t length);
    const uint8_t *keep(std::string_view text);
    bool append(uint32_t kind, const uint8_t *text, size_t text_length, const uint8_t *source,
                size_t source_length);
    csimdjson_status walk(ondemand::value value, uint32_t depth, const uint8_t *&end);
    csimdjson_status walk_array(ondemand::value value, uint32_t depth, const uint8_t *&end);
    csimdjson_status walk_object(ondemand::value value, uint32_t depth, const uint8_t *&end);
    template <typename Value>
    csimdjson_status add_scalar(Value &value, std::string_view token, const uint8_t *&end);
    template <typename Value>
    csimdjson_status add_string(Value &value, const uint8_t *token, const uint8_t *end);
    csimdjson_status add_key(ondemand::field &field);
    csimdjson_status add_token(const uint8_t *token, const uint8_t *end);
    csimdjson_status close(uint32_t index, uint32_t count, uint8_t bracket, const uint8_t *inner,
                           const uint8_t *&end);
    csimdjson_status parse_document(size_t length);
};

// simdjson's own tables are needed only while a document is taken apart: one set per thread, which
// stays in the cache, serves the parsers of all documents that are kept.
static thread_local ondemand::parser tables;

// Grows the document buffer and simdjson's tables by powers of two, so that documents of slowly
// growing size do not allocate one by one.
bool csimdjson_parser::make_room(size_t length) {
    if (buffer == nullptr || length > capacity) {
        size_t larger = capacity < minimum_bytes ? minimum_bytes : capacity;
        while (larger < length) larger *= 2;
        auto memory = static_cast<uint8_t *>(realloc(buffer, larger + SIMDJSON_PADDING));
        if (memory == nullptr) return false;
        buffer = memory;
        capacity = larger;
    }
    if (tables.capacity() >= capacity && tables.max_depth() >= max_depth) return true;
    size_t depth = tables.max_depth() > max_depth ? tables.max_depth() : max_depth;
    return tables.allocate(tables.capacity() > capacity ? tables.capacity() : capacity, depth)
        == SUCCESS;
}

// Copies an unescaped string out of simdjson's buffer; null when there is no memory.
const uint8_t *csimdjson_parser::keep(std::string_view text) {
    if (strings_capacity < capacity) {
        // Nothing of this document is in there yet, or it would be large enough.
        free(strings);
        strings = static_cast<uint8_t *>(malloc(capacity));
        strings_capacity = strings == nullptr ? 0 : capacity;
        if (strings == nullptr) return nullptr;
    }
    uint8_t *start = strings + strings_length;
    memcpy(start, text.data(), text.size());
    strings_length += text.size();
    return start;
}

bool csimdjson_parser::append(uint32_t kind, const uint8_t *text, size_t text_length,
                              const uint8_t *source, size_t source_length) {
    if (node_count == node_capacity) {
        uint32_t larger = node_capacity == 0 ? minimum_nodes : node_capacity * 2;
        auto memory = static_cast<csimdjson_node *>(realloc(nodes, larger * sizeof(*nodes)));
        if (memory == nullptr) return false;
        nodes = memory;
        node_capacity = larger;
    }
    csimdjson_node &node = nodes[node_count];
    node.text = text;
    node.source = source;
    node.text_length = static_cast<uint32_t>(text_length);
    node.source_length = static_cast<uint32_t>(source_length);
    node.count = 0;
    node.kind = kind;
    node_count++;
    node.next = node_count;
    return true;
}

// A number, true, false or null; `end` is one past its last byte.
csimdjson_status csimdjson_parser::add_token(const uint8_t *token, const uint8_t *end) {
    size_t length = static_cast<size_t>(end - token);
    uint32_t kind;
    if (*token == '-' || is_digit(*token)) {
        if (!is_number(token, end)) return csimdjson_bad_number;
        kind = csimdjson_number;
    } else if (length == 4 && memcmp(token, "true", 4) == 0) {
        kind = csimdjson_true;
    } else if (length == 5 && memcmp(token, "false", 5) == 0) {
        kind = csimdjson_false;
    } else if (length == 4 && memcmp(token, "null", 4) == 0) {
        kind = csimdjson_null;
    } else {
        return csimdjson_syntax;
    }
    return append(kind, token, length, token, length) ? csimdjson_ok : csimdjson_out_of_memory;
}

// A string, number or literal; the token reaches to the next one, and only white space can stand
// between them.
template <typename Value>
csimdjson_status csimdjson_parser::add_scalar(Value &value, std::string_view token,
                                              const uint8_t *&end) {
    auto start = reinterpret_cast<const uint8_t *>(token.data());
    end = start + token.size();
    while (end > start && is_space(end[-1])) end--;
    if (end == start) return csimdjson_syntax;
    return *start == '"' ? add_string(value, start, end) : add_token(start, end);
}

// A string that needs no unescaping stays where it stands. It is consumed either way: skipping
// one would take a string before a colon for a key.
template <typename Value>
csimdjson_status csimdjson_parser::add_string(Value &value, const uint8_t *token,
                                              const uint8_t *end) {
    size_t length = static_cast<size_t>(end - token);
    if (length < 2 || end[-1] != '"') return csimdjson_syntax;
    if (memchr(token, '\\', length) == nullptr) {
        if (value.get_raw_json_string().error() != SUCCESS) return csimdjson_syntax;
        return append(csimdjson_string, token + 1, length - 2, token, length)
            ? csimdjson_ok : csimdjson_out_of_memory;
    }
    std::string_view text;
    if (value.get_string().get(text) != SUCCESS) return csimdjson_bad_string;
    const uint8_t *start = keep(text);
    if (start == nullptr) return csimdjson_out_of_memory;
    if (has_surrogate(start, text.size())) return csimdjson_bad_string;
    return append(csimdjson_string, start, text.size(), token, length)
        ? csimdjson_ok : csimdjson_out_of_memory;
}

csimdjson_status csimdjson_parser::add_key(ondemand::field &field) {
    auto start = reinterpret_cast<const uint8_t *>(field.key().raw());
    cursor = start - 1;
    const uint8_t *end = start;
    bool escaped = false;
    // The quote is there: simdjson refuses a document with an open string.
    for (; *end != '"'; end++) {
        if (*end == '\\') {
            escaped = true;
            end++;
        }
    }
    size_t length = static_cast<size_t>(end - start);
    const uint8_t *name = start;
    size_t name_length = length;
    if (escaped) {
        std::string_view text;
        if (field.unescaped_key().get(text) != SUCCESS) return csimdjson_bad_string;
        name = keep(text);
        name_length = text.size();
        if (name == nullptr) return csimdjson_out_of_memory;
        if (has_surrogate(name, name_length)) return csimdjson_bad_string;
    }
    if (!append(csimdjson_key, name, name_length, start - 1, length + 2)) {
        return csimdjson_out_of_memory;
    }
    nodes[node_count - 1].count = name_tag(name, name_length);
    return csimdjson_ok;
}

// `inner` is the end of the container's last child, or one past its opening bracket.
csimdjson_status csimdjson_parser::close(uint32_t index, uint32_t count, uint8_t bracket,
                                         const uint8_t *inner, const uint8_t *&end) {
    while (is_space(*inner)) inner++;
    if (*inner != bracket) return csimdjson_syntax;
    end = inner + 1;
    csimdjson_node &node = nodes[index];
    node.count = count;
    node.next = node_count;
    node.source_length = node.text_length = static_cast<uint32_t>(end - node.source);
    return csimdjson_ok;
}

csimdjson_status csimdjson_parser::walk_array(ondemand::value value, uint32_t depth,
                                              const uint8_t *&end) {
    uint32_t index = node_count;
    const uint8_t *inner = cursor + 1;
    if (!append(csimdjson_array, cursor, 0, cursor, 0)) return csimdjson_out_of_memory;
    ondemand::array array;
    if (value.get_array().get(array) != SUCCESS) return csimdjson_syntax;
    uint32_t count = 0;
    for (auto element : array) {
        ondemand::value child;
        if (element.get(child) != SUCCESS) return csimdjson_syntax;
        csimdjson_status status = walk(child, depth + 1, inner);
        if (status != csimdjson_ok) return status;
        count++;
    }
    return close(index, count, ']', inner, end);
}

csimdjson_status csimdjson_parser::walk_object(ondemand::value value, uint32_t depth,
                                               const uint8_t *&end) {
    uint32_t index = node_count;
    const uint8_t *inner = cursor + 1;
    if (!append(csimdjson_object, cursor, 0, cursor, 0)) return csimdjson_out_of_memory;
    ondemand::object object;
    if (value.get_object().get(object) != SUCCESS) return csimdjson_syntax;
    uint32_t count = 0;
    for (auto member : object) {
        ondemand::field field;
        if (std::move(member).get(field) != SUCCESS) return csimdjson_syntax;
        uint32_t key = node_count;
        csimdjson_status status = add_key(field);
        if (status != csimdjson_ok) return status;
        status = walk(field.value(), depth + 1, inner);
        if (status != csimdjson_ok) return status;
        nodes[key].next = node_count;
        count++;
    }
    return close(index, count, '}', inner, end);
}

// Adds a value with everything in it; `end` becomes one past its last byte.
csimdjson_status csimdjson_parser::walk(ondemand::value value, uint32_t depth,
                                        const uint8_t *&end) {
    std::string_view token = value.raw_json_token();
    auto start = reinterpret_cast<const uint8_t *>(token.data());
    cursor = start;
    if (*start == '{' || *start == '[') {
        if (depth >= max_depth) return csimdjson_too_deep;
        return *start == '{' ? walk_object(value, depth, end) : walk_array(value, depth, end);
    }
    return add_scalar(value, token, end);
}

csimdjson_status csimdjson_parser::parse_document(size_t length) {
    auto result = tables.iterate(buffer, length, length + SIMDJSON_PADDING);
    if (result.error() != SUCCESS) {
        switch (result.error()) {
        case EMPTY: return csimdjson_empty;
        case UTF8_ERROR: cursor = nullptr; return csimdjson_bad_utf8;
        case UNCLOSED_STRING: cursor = nullptr; return csimdjson_bad_string;
        case UNESCAPED_CHARS: cursor = nullptr; return csimdjson_bad_string;
        case MEMALLOC: return csimdjson_out_of_memory;
        default: cursor = nullptr; return csimdjson_syntax;
        }
    }
    ondemand::document document;
    if (std::move(result).get(document) != SUCCESS) return csimdjson_syntax;
    std::string_view token;
    if (document.raw_json_token().get(token) != SUCCESS) return csimdjson_syntax;
    const uint8_t *end = nullptr;
    csimdjson_status status;
    cursor = reinterpret_cast<const uint8_t *>(token.data());
    if (*cursor == '{' || *cursor == '[') {
        ondemand::value root;
        if (document.get_value().get(root) != SUCCESS) return csimdjson_syntax;
        status = walk(root, 0, end);
    } else {
        status = add_scalar(document, token, end);
    }
    if (status != csimdjson_ok) return status;
    while (end < buffer + length && is_space(*end)) end++;
    cursor = end;
    return end == buffer + length ? csimdjson_ok : csimdjson_trailing;
}

csimdjson_parser *csimdjson_create(size_t max_bytes, uint32_t max_depth) {
    return new (std::nothrow) csimdjson_parser(max_bytes, max_depth);
}

void csimdjson_destroy(csimdjson_parser *parser) { delete parser; }

csimdjson_result csimdjson_parse(csimdjson_parser *parser, const uint8_t *bytes, size_t length) {
    csimdjson_result result = {csimdjson_ok, -1, nullptr};
    if (length > parser->max_bytes) {
        result.status = csimdjson_too_large;
        return result;
    }
    if (!parser->make_room(length)) {
        result.status = csimdjson_out_of_memory;
        return result;
    }
    if (length > 0) memcpy(parser->buffer, bytes, length);
    // Zeros behind the end: a bracket left there by an earlier document must not close this one.
    memset(parser->buffer + length, 0, SIMDJSON_PADDING);
    parser->node_count = 0;
    parser->strings_length = 0;
    parser->cursor = parser->buffer;
    result.status = parser->parse_document(length);
    result.nodes = parser->nodes;
    if (result.status != csimdjson_ok && parser->cursor != nullptr) {
        result.offset = parser->cursor - parser->buffer;
    }
    return result;
}
