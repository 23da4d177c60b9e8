package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
	"navra/internal/witness"
)

// signingPath is where the key of checkpoints lies once it was changed. It is another than the key that seals, so that sessions and
// placeholders stay good.
func signingPath(keyPath string) string { return strings.TrimSuffix(keyPath, ".key") + ".signing.key" }

// signerOf is the signer of checkpoints: of its own key where there is one, else derived from the key that seals.
func signerOf(keyPath string, key seal.Key) (blackbox.Signer, error) {
	path := signingPath(keyPath)
	if _, err := os.Stat(path); err == nil {
		if key, err = seal.LoadOrCreate(path); err != nil {
			return blackbox.Signer{}, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return blackbox.Signer{}, fmt.Errorf("checkpoint key: %w", err)
	}
	return blackbox.NewSigner(key.Seed("checkpoints"))
}

// keyName is a verifier key without the key: its name and hash.
func keyName(key string) string { return strings.Join(strings.SplitN(key, "+", 3)[:2], "+") }

func rotateKeyCmd(s std, o *storeFlags) *cobra.Command {
	return &cobra.Command{
		Use: "rotate-key", Short: "Change the key that signs checkpoints", Args: cobra.NoArgs,
		Long: "Change the key that signs checkpoints. Gateways that run take up the new one by themselves; sessions and placeholders stay good.\n" +
			"The entry that records it is signed by both keys, so that checkpoints of the old key are still verified.",
		Example: "  navra blackbox rotate-key\n  navra blackbox rotate-key --config navra.yaml",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			db, keyPath, err := o.openKeyed(cmd.Context(), s, false)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			if _, err := os.Stat(keyPath); err != nil {
				return fmt.Errorf("there is no key to change: %w", err)
			}
			key, err := seal.LoadOrCreate(keyPath)
			if err != nil {
				return err
			}
			r := witness.Rotation{Log: db, Store: db}
			if r.Held, r.Old, err = o.evidence(keyPath); err != nil {
				return err
			}
			if r.Held.Also, err = witness.Keys(cmd.Context(), db, db, r.Old.Key()); err != nil {
				return err
			}
			next := signingPath(keyPath) + ".new" // that of a change which was cut short is used
			made, err := seal.LoadOrCreate(next)
			if err != nil {
				return err
			}
			if r.Next, err = blackbox.NewSigner(made.Seed("checkpoints")); err != nil {
				return err
			}
			r.Use = func() error { return os.Rename(next, signingPath(keyPath)) }
			marks, err := heads.Open(headsPath(keyPath), headsTag(key), true)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, marks.Close()) }()
			if _, file := db.(*sqlite.DB); !file {
				marks.Lasting()
			}
			if r.Held.Mark != nil {
				db.Expect(store.Receipt{Seq: r.Held.Mark.Size, Hash: r.Held.Mark.Head}, nil)
			}
			db.OnCommit(func(r store.Receipt) error { return marks.Note(r.Seq, r.Hash) })
			at, err := r.Run(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(s.err, "entry %d changes the key that signs checkpoints; the old one was\n  %s\nthe new one lies in %s; note its verifier key down:\n", at, r.Old.Key(), signingPath(keyPath))
			_, err = fmt.Fprintln(s.out, r.Next.Key())
			return err
		},
	}
}
