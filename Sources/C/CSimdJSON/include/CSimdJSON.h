// A C face for simdjson's on-demand parser; imported by JSON only.
#pragma once
