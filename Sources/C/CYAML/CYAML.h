// libyaml 0.2; imported by Config only.
#pragma once
#include <yaml.h>
