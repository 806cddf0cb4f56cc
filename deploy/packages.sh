# What the Debian 12 machine needs beside Swift. Sourced, not run:
#
#   need_swift                 says clearly when there is no toolchain
#   install_packages NAME...   installs the Debian packages that are missing, and only those
#
# shellcheck shell=bash

# To build: the C libraries and the headers of the C++ library that simdjson uses.
BUILD_PACKAGES=(
    librdkafka-dev libnghttp2-dev libssl-dev libhiredis-dev libyaml-dev libmicrohttpd-dev
    libhttp-parser-dev libsimdjson-dev zlib1g-dev libicu-dev libstdc++-12-dev pkg-config
)

# To test: servers and clients that are not ours, and Python for the tests that use them.
TEST_PACKAGES=(
    nghttp2-client nghttp2-server redis-server redis-tools postgresql kcat python3 python3-venv
    prometheus systemd protobuf-compiler chromium
)

need_swift() {
    if ! command -v swift >/dev/null; then
        echo "error: there is no 'swift' in PATH. Install Swift 6.3 for Debian 12 and put its" \
            "usr/bin first in PATH." >&2
        return 1
    fi
}

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        echo "note: this is not Debian; assuming that these are there: $*" >&2
        return 0
    fi
    local name missing=()
    for name in "$@"; do
        if [[ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" != installed ]]; then
            missing+=("$name")
        fi
    done
    [[ ${#missing[@]} -eq 0 ]] && return 0

    local root=()
    if [[ $EUID -ne 0 ]]; then
        if ! command -v sudo >/dev/null; then
            echo "error: missing Debian packages, and neither root nor sudo to install them." >&2
            echo "As root: apt-get update && apt-get install ${missing[*]}" >&2
            return 1
        fi
        root=(sudo)
    fi
    echo "Installing Debian packages: ${missing[*]}" >&2
    if ! { "${root[@]}" apt-get update -qq && "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } >&2; then
        echo "error: apt-get could not install ${missing[*]}; its message is above." >&2
        return 1
    fi
}

# Debian's name for Node is nodejs; any other Node will do as well.
node_package() {
    command -v node >/dev/null || echo nodejs
}
