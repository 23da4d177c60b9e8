# make run   builds navra and plays a guarded conversation (STAY=1 keeps serving)
# make test  runs every test with the race detector; installs what the tests need
.PHONY: build run test check fuzz bench bench-rig clean

build:
	CGO_ENABLED=0 go build -trimpath -o bin/navra ./cmd/navra

run: build
	./bin/navra demo $(if $(STAY),--stay)

test:
	go test -race -count=1 -timeout 15m ./...

check:
	./check

fuzz:
	./check fuzz 60s

bench:
	go test -run '^$$' -bench . -benchmem ./internal/...

# BENCHFLAGS="-conns 1 -sizes 200", see docs/benchmarks.md
bench-rig:
	cd bench && go run . $(BENCHFLAGS)

clean:
	rm -rf bin
