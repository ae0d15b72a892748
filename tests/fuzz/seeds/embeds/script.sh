#!/bin/sh -eu
echo "${A}" @{x}
