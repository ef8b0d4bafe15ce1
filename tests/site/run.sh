#!/bin/sh
# Makes the site without a warning, opens it in a headless Chromium, follows all links and looks at its layout on a phone.
# Installs what that needs (about 300 MB, once), which is why it is no part of the suite. Takes about 2 minutes.
# usage: tests/site/run.sh
set -eu

cd "$(dirname "$0")/../.."
scripts/setup.sh site
cmake --preset docs
cmake --build build/docs --target site
exec /usr/bin/python3 -B tests/site/check_site.py build/docs/site
