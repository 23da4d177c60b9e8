module navra/bench

go 1.26.0
