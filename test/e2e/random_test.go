package e2e

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// kills is how many of something a test does: few, or many where NAVRA_SOAK=full.
func kills(few, many int) int {
	if os.Getenv("NAVRA_SOAK") == "full" {
		return many
	}
	return few
}

const seedVar = "NAVRA_SEED"

// seedOf is a source of random numbers whose seed is printed. NAVRA_SEED plays one again: the same moments; what the machine does at them is its own.
func seedOf(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedVar); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVar, err)
		}
	}
	t.Logf("seed %d; %s=%[1]d plays it again", seed, seedVar)
	return rand.New(rand.NewPCG(seed, 1))
}
