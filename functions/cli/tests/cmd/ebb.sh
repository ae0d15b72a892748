#!/bin/sh
# The program of the snapshots. It gets no variable that selects a server, a cluster or an account.
exec env -i PATH="$PATH" NO_COLOR=1 COLUMNS=100 "$PROGRAM" "$@"
