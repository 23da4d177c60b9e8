# make run    builds navra and plays a guarded conversation (STAY=1 keeps serving, UPSTREAM="CMD ARGS" guards that server)
# make test   runs every test with the race detector; installs what the tests need
# make bench  measures navra beside the floors of any gateway, see docs/benchmarks.md; BENCHFLAGS="-conns 1 -sizes 200"
# make soak   500 clients at once; 200 kills under load and 60,000 to 80,000 entries of several processes on each store, 1,000 races, power cuts at 61
#             moments; some 30 minutes. make test does each with a tenth or less. NAVRA_SEED=N plays the printed seed again
# make conformance  runs the official suite through navra, see docs/conformance.md; make conformance-soak does it five times
.PHONY: build run test check fuzz bench microbench soak conformance conformance-soak clean

build:
	CGO_ENABLED=0 go build -trimpath -o bin/navra ./cmd/navra

run: build
	./bin/navra demo $(if $(STAY),--stay) $(if $(UPSTREAM),-- $(UPSTREAM))

test:
	go test -race -count=1 -timeout 30m ./...

check:
	./check

fuzz:
	./check fuzz 60s

bench:
	cd bench && go run . $(BENCHFLAGS)

microbench:
	go test -run '^$$' -bench . -benchmem ./internal/...

soak:
	NAVRA_SOAK=full go test -count=1 -p 1 -timeout 90m -run 'Soak|PowerCut' -v ./test/stores ./test/e2e

conformance:
	test/conformance/run

conformance-soak:
	for n in 1 2 3 4 5; do test/conformance/run || exit 1; done

clean:
	rm -rf bin
