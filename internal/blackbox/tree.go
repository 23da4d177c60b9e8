package blackbox

import (
	"crypto"
	"errors"
	"fmt"
	"iter"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// The tree of RFC 6962 over the entries' hashes: entry 1 is leaf 0.
var (
	hasher = rfc6962.New(crypto.SHA256)
	ranges = compact.RangeFactory{Hash: hasher.HashChildren}
)

// A Tree is the tree over the first entries, as far as it takes to grow it and to know its root. The zero Tree is empty. It is not
// safe for concurrent use.
type Tree struct{ r *compact.Range }

// TreeAt is the tree that had a checkpoint's frontier.
func TreeAt(size Seq, frontier [][32]byte) (*Tree, error) {
	hashes := make([][]byte, len(frontier))
	for i := range frontier {
		hashes[i] = frontier[i][:]
	}
	r, err := ranges.NewRange(0, uint64(size), hashes)
	if err != nil {
		return nil, fmt.Errorf("frontier: %w", err)
	}
	return &Tree{r}, nil
}

func (t *Tree) grown() *compact.Range {
	if t.r == nil {
		t.r = ranges.NewEmptyRange(0)
	}
	return t.r
}

// Append adds the hash of the next entry.
func (t *Tree) Append(leaf [32]byte) error { return t.grown().Append(leaf[:], nil) }

// Size is how many entries the tree covers.
func (t *Tree) Size() Seq { return Seq(t.grown().End()) }

// Root is the tree's root hash. That of the empty tree is SHA-256 of nothing.
func (t *Tree) Root() (root [32]byte, err error) {
	if t.Size() == 0 {
		copy(root[:], hasher.EmptyRoot())
		return root, nil
	}
	b, err := t.r.GetRootHash(nil)
	copy(root[:], b)
	return root, err
}

// Frontier is what TreeAt takes to go on from here.
func (t *Tree) Frontier() (out [][32]byte) {
	for _, h := range t.grown().Hashes() {
		out = append(out, [32]byte(h))
	}
	return out
}

// ErrProof reports a proof that does not hold.
var ErrProof = errors.New("the proof does not hold")

// ProveInclusion makes the proof that entry n is in the tree of a size. leaves yields the hashes of all entries from the first on.
func ProveInclusion(leaves iter.Seq2[[32]byte, error], n, size Seq) ([][32]byte, error) {
	if n == 0 || n > size {
		return nil, fmt.Errorf("entry %d is not among the %d that the tree covers", n, size)
	}
	nodes, err := proof.Inclusion(uint64(n)-1, uint64(size))
	if err != nil {
		return nil, err
	}
	return prove(leaves, size, nodes)
}

// ProveConsistency makes the proof that the tree of a size has grown out of that of an older one.
func ProveConsistency(leaves iter.Seq2[[32]byte, error], old, size Seq) ([][32]byte, error) {
	nodes, err := proof.Consistency(uint64(old), uint64(size))
	if err != nil {
		return nil, err
	}
	return prove(leaves, size, nodes)
}

// prove gathers a proof's nodes while the tree grows over the leaves.
func prove(leaves iter.Seq2[[32]byte, error], size Seq, nodes proof.Nodes) ([][32]byte, error) {
	wanted := map[compact.NodeID][]byte{}
	for _, id := range nodes.IDs {
		wanted[id] = nil
	}
	note := func(id compact.NodeID, hash []byte) {
		if _, ok := wanted[id]; ok {
			wanted[id] = append([]byte(nil), hash...)
		}
	}
	r := ranges.NewEmptyRange(0)
	for leaf, err := range leaves {
		if err != nil {
			return nil, err
		}
		note(compact.NewNodeID(0, r.End()), leaf[:])
		if err := r.Append(leaf[:], note); err != nil {
			return nil, err
		}
		if Seq(r.End()) == size {
			break
		}
	}
	if Seq(r.End()) != size {
		return nil, fmt.Errorf("there are only %d entries", r.End())
	}
	hashes := make([][]byte, len(nodes.IDs))
	for i, id := range nodes.IDs {
		if hashes[i] = wanted[id]; hashes[i] == nil {
			return nil, fmt.Errorf("%w: a node of the tree is missing", ErrProof)
		}
	}
	hashes, err := nodes.Rehash(hashes, hasher.HashChildren)
	if err != nil {
		return nil, err
	}
	out := make([][32]byte, len(hashes))
	for i, h := range hashes {
		out[i] = [32]byte(h)
	}
	return out, nil
}

// CheckInclusion checks that an entry with this hash is number n in the tree with this root.
func CheckInclusion(leaf [32]byte, n, size Seq, path [][32]byte, root [32]byte) error {
	if n == 0 {
		return fmt.Errorf("%w: there is no entry 0", ErrProof)
	}
	if err := proof.VerifyInclusion(hasher, uint64(n)-1, uint64(size), leaf[:], slices32(path), root[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	return nil
}

// CheckConsistency checks that the tree with the new root has grown out of that with the old one.
func CheckConsistency(old, size Seq, path [][32]byte, oldRoot, root [32]byte) error {
	if err := proof.VerifyConsistency(hasher, uint64(old), uint64(size), slices32(path), oldRoot[:], root[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	return nil
}

func slices32(in [][32]byte) [][]byte {
	out := make([][]byte, len(in))
	for i := range in {
		out[i] = in[i][:]
	}
	return out
}
