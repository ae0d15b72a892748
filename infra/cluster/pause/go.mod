module ebb.dev/cluster/pause

go 1.24
