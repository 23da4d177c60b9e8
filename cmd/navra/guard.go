package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navra/internal/blackbox"
	"navra/internal/blackbox/view"
	"navra/internal/heads"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
	"navra/internal/witness"
)

// A guard keeps what the blackbox can be held against: checkpoints in it, and the heads file beside its key.
type guard struct {
	keeper *witness.Keeper
	heads  *heads.File
	said   []string // what was found at the start
}

func headsPath(keyPath string) string { return strings.TrimSuffix(keyPath, ".key") + ".heads" }

func headsTag(key seal.Key) func([]byte) [32]byte { return key.For("heads").Tag }

// watch holds the database against the heads file, and keeps both from here on. A database that is shorter than it was is recorded as such,
// and what the heads file said is put aside.
func watch(ctx context.Context, db database, p plan, key seal.Key, tell func(context.Context, string) error, offer func([]byte), log *slog.Logger) (g *guard, err error) {
	renew := func() (blackbox.Signer, error) { return signerOf(p.keyPath(), key) }
	signer, err := renew()
	if err != nil {
		return nil, err
	}
	g = &guard{said: []string{"checkpoints are signed by " + keyName(signer.Key())}}
	if known, err := witness.Keys(ctx, db, db, signer.Key()); err != nil {
		return nil, err
	} else if newest := known[len(known)-1]; newest != signer.Key() {
		log.Error("the log's checkpoint key was changed and the new one is not here: copy its file from where that was done", "file", signingPath(p.keyPath()), "key", newest)
		g.said = append(g.said, "the checkpoint key that the log was changed to is not here: "+keyName(newest))
	}
	path, tag := headsPath(p.keyPath()), headsTag(key)
	mark, problem, err := heldPatiently(ctx, db, path, tag)
	if err != nil {
		return nil, err
	}
	if problem != "" {
		aside := path + "." + strconv.FormatInt(time.Now().UnixMicro(), 10)
		if err := os.Rename(path, aside); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("heads file: %w", err)
		}
		log.Error("the blackbox is not what the heads file says; run navra blackbox verify", "problem", problem, "kept", aside)
		g.said = append(g.said, blackbox.ChangedSince+problem)
		mark = heads.Mark{}
	}
	if g.heads, err = heads.Open(path, tag, p.Blackbox.Fsync); err != nil {
		return nil, err
	}
	if p.StoreURL != "" {
		g.heads.Lasting()
	}
	db.OnCommit(func(r store.Receipt) error { return g.heads.Note(r.Seq, r.Hash) })
	db.Expect(store.Receipt{Seq: mark.Size, Hash: mark.Head}, func(problem string) {
		log.Error("the blackbox was changed while navra ran; that is recorded", "problem", problem)
	})
	g.keeper = witness.Keep(witness.Options{
		Log: db, Signer: signer, Renew: renew, Logger: log, To: p.Blackbox.CheckpointTo, Offer: offer, Keep: p.Blackbox.Keep, Tell: tell,
	})
	return g, nil
}

// heldPatiently is held after a moment, where another process may have begun the log just now, and writes the file after its entry.
func heldPatiently(ctx context.Context, db database, path string, tag func([]byte) [32]byte) (m heads.Mark, problem string, err error) {
	m, problem, err = held(ctx, db, path, tag)
	for try := 0; problem != "" && err == nil && try < 5; try++ {
		time.Sleep(20 * time.Millisecond)
		m, problem, err = held(ctx, db, path, tag)
	}
	return m, problem, err
}

// held says how the database differs from what the heads file says, and what that is.
func held(ctx context.Context, db database, path string, tag func([]byte) [32]byte) (m heads.Mark, problem string, err error) {
	m, ok, err := heads.Read(path, tag)
	if errors.Is(err, heads.ErrDamaged) {
		return m, err.Error(), nil
	}
	if err != nil {
		return m, "", err
	}
	head, err := db.Head(ctx)
	switch {
	case err != nil:
		return m, "", err
	case !ok && head.Seq > 0:
		return m, fmt.Sprintf("there is none beside a log of %d entries", head.Seq), nil
	case !ok:
		return m, "", nil
	}
	at := [32]byte{}
	for leaf, err := range db.Leaves(ctx, m.Size) {
		if err != nil {
			return m, "", err
		}
		at = leaf
		break
	}
	problem, _ = m.Compare(head.Seq, at)
	return m, problem, nil
}

// lastCheckpoint is how long the last checkpoint may take: hosts kill a process some 100 ms after they asked it to end.
const lastCheckpoint = 40 * time.Millisecond

func (g *guard) close(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, lastCheckpoint)
	defer stop()
	err := g.keeper.Close(ctx)
	if ctx.Err() != nil {
		err = nil // the next start makes it
	}
	return errors.Join(err, g.heads.Close())
}

// evidence is what lies beside the key: none where there is no key.
func (o *storeFlags) evidence(keyPath string) (e witness.Evidence, signer blackbox.Signer, err error) {
	if _, err := os.Stat(keyPath); errors.Is(err, fs.ErrNotExist) {
		return e, signer, nil
	}
	key, err := seal.LoadOrCreate(keyPath)
	if err != nil {
		return e, signer, err
	}
	if signer, err = signerOf(keyPath, key); err != nil {
		return e, signer, err
	}
	e.Key = signer.Key()
	m, ok, err := heads.Read(headsPath(keyPath), headsTag(key))
	if ok && err == nil {
		e.Mark = &m
	}
	return e, signer, err
}

func verifyCmd(s std, o *storeFlags) *cobra.Command {
	var since []string
	var key string
	c := &cobra.Command{
		Use: "verify", Short: "Check that no entry was edited, removed, inserted, reordered or cut off", Args: cobra.NoArgs,
		Example: "  navra blackbox verify\n  navra blackbox verify --since checkpoint.txt   # one that was copied elsewhere",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := usableKey(key, false); err != nil {
				return err
			}
			db, keyPath, err := o.openLog(cmd.Context(), s)
			if err != nil {
				return err
			}
			defer db.Close()
			e, _, err := o.evidence(keyPath)
			if err != nil {
				return err
			}
			if key != "" {
				e.Key = key
			}
			if e.Key == "" {
				if err := keyless(cmd.Context(), db, keyPath); err != nil {
					return err
				}
			}
			if e.Key != "" {
				if e.Also, err = witness.Keys(cmd.Context(), db, db, e.Key); err != nil {
					return err
				}
			}
			for _, path := range since {
				note, err := os.ReadFile(path)
				if err != nil {
					return fmt.Errorf("--since: %w", err)
				}
				e.Since = append(e.Since, append(bytes.TrimRight(note, "\n"), '\n')) // who copies a text may add a line
			}
			if e.Key == "" && len(since) > 0 {
				return usageError{errors.New("--since needs the log's verifier key: --key navra/…+…+…")}
			}
			err = verify(cmd.Context(), s, db, e, keyPath)
			if unused := (witness.SinceError{}); errors.As(err, &unused) {
				return fmt.Errorf("--since %s: %w (the log was not verified)", since[unused.N], unused)
			}
			return err
		},
	}
	c.Flags().StringArrayVar(&since, "since", nil, "a checkpoint that was copied elsewhere")
	c.Flags().StringVar(&key, "key", "", "the verifier key of checkpoints; default: of the key beside the database")
	return c
}

// keyless refuses to verify without a key what could be held against more with it: who takes the key away would else have taken that away too.
func keyless(ctx context.Context, db database, keyPath string) error {
	kept, err := db.Checkpoints(ctx)
	if err != nil {
		return err
	}
	_, err = os.Stat(headsPath(keyPath))
	if len(kept) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	against := fmt.Sprintf("its %d checkpoints", len(kept))
	if err == nil {
		against += " and the heads file"
	}
	chain := ""
	if _, file := db.(*sqlite.DB); file {
		chain = ", or for the chain alone use contrib/verify.py"
	}
	return fmt.Errorf("the key %s is not there: the log cannot be held against %s; give the verifier key that was noted down with --key%s", keyPath, against, chain)
}

const wayOut = "Copy the database and what lies beside it before anything else is done; docs/auditing.md says what this may come from and what to do."

// usableKey refuses a verifier key that is none: the log would else seem to be signed with another.
func usableKey(key string, wanted bool) error {
	switch {
	case key == "" && wanted:
		return usageError{errors.New("--key is missing: the verifier key navra/…+…+… that the log's operator has noted down; one that comes with the proof shows nothing")}
	case key == "":
		return nil
	}
	if err := blackbox.CheckKey(key); err != nil {
		return usageError{fmt.Errorf("--key %w", err)}
	}
	return nil
}

func verify(ctx context.Context, s std, db database, e witness.Evidence, keyPath string) error {
	log, err := watching(ctx, db, s.err)
	if err != nil {
		return err
	}
	f, err := witness.Verify(ctx, log, e)
	if err != nil {
		return fmt.Errorf("nothing can be said of the log, which was not read to its end: %w", err)
	}
	if !f.OK() {
		if f.Unclean {
			return fmt.Errorf("%s (the %d entries are good)\n%s", f.Problem, f.Entries, wayOut)
		}
		return fmt.Errorf("the blackbox is NOT whole: entry %d: %s (%d entries before it fit together)\n%s", f.At, f.Problem, min(uint64(f.At)-1, f.Entries), wayOut)
	}
	fmt.Fprintf(s.out, "whole: %d entries, head %s\nroot %s, held against %d checkpoints", f.Entries, hex.EncodeToString(f.Head[:]), base64.StdEncoding.EncodeToString(f.Root[:]), f.Checkpoints)
	missing := "there is no heads file"
	if _, err := os.Stat(headsPath(keyPath)); err == nil {
		missing = "the heads file is empty"
		if _, err := os.Stat(keyPath); err != nil {
			missing = "the heads file cannot be read without " + keyPath
		}
	}
	if e.Mark != nil {
		_, err = fmt.Fprintln(s.out, " and the heads file")
	} else {
		_, err = fmt.Fprintf(s.out, "; %s: a tail that was cut off would not be seen\n", missing)
	}
	if err != nil {
		return err
	}
	return tellChanges(ctx, s, db, f.Report)
}

// tellChanges shows the entries of a whole log which record that it was changed before.
func tellChanges(ctx context.Context, s std, db database, r blackbox.Report) error {
	if r.Alarms == 0 {
		return nil
	}
	fmt.Fprintf(s.out, "It is whole, and records that it was found changed, %s; docs/auditing.md says what to do:\n", times(r.Alarms))
	for _, n := range r.Changed {
		e, err := entryAt(ctx, db, n)
		if err != nil {
			return err
		}
		if e == nil {
			continue // cut off since: the next verification says so
		}
		fmt.Fprintf(s.out, "  entry %d, %s: %s\n", n, e.Entry.Time.Format(time.RFC3339), view.Printable(e.Entry.Reason))
	}
	if more := r.Alarms - uint64(len(r.Changed)); more > 0 {
		fmt.Fprintf(s.out, "  and %d more\n", more)
	}
	return nil
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// A proofFile is a proof as it is written to a file.
type proofFile struct {
	Entry      string   `json:"entry"`
	Path       []string `json:"path"`
	Checkpoint string   `json:"checkpoint"`
}

func proveCmd(s std, o *storeFlags) *cobra.Command {
	return &cobra.Command{
		Use: "prove NUMBER|REFERENCE", Short: "Prove that an entry is in the blackbox, to somebody without the database", Example: "  navra blackbox prove 42 > proof.json\n  navra blackbox prove 4l5zeqv6d7qj2m3c > proof.json", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := usableName(args[0]); err != nil {
				return err
			}
			db, keyPath, err := o.openLog(cmd.Context(), s)
			if err != nil {
				return err
			}
			defer db.Close()
			r, err := findEntry(cmd.Context(), db, args[0])
			if err != nil {
				return err
			}
			e, signer, err := o.evidence(keyPath)
			if err != nil {
				return err
			}
			if e.Key == "" {
				return fmt.Errorf("the key %s is not there: without it nothing can be signed", keyPath)
			}
			if e.Also, err = witness.Keys(cmd.Context(), db, db, e.Key); err != nil {
				return err
			}
			p, err := witness.ProofOf(cmd.Context(), db, signer, r.Seq, e)
			if err != nil {
				return err
			}
			out := proofFile{Entry: string(p.Entry), Path: []string{}, Checkpoint: string(p.Checkpoint)}
			for _, h := range p.Path {
				out.Path = append(out.Path, hex.EncodeToString(h[:]))
			}
			fmt.Fprintf(s.err, "check it with: navra blackbox verify-proof FILE --key '%s'\n", e.Key)
			enc := json.NewEncoder(s.out)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			return enc.Encode(out)
		},
	}
}

// maxProof bounds what is read of a proof, in bytes.
const maxProof = 1 << 20

func verifyProofCmd(s std) *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "verify-proof FILE", Short: "Check a proof, without the database", Example: "  navra blackbox verify-proof proof.json --key 'navra/1f…+2a…+AQ…'", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := usableKey(key, true); err != nil {
				return err
			}
			p, err := readProof(args[0])
			if err != nil {
				return err
			}
			e, signed, err := p.Check(key)
			if err != nil {
				return fmt.Errorf("%s proves nothing: %w", args[0], err)
			}
			about := strings.Join(strings.Fields(strings.Join([]string{string(e.Kind), view.Printable(e.Method), view.Printable(e.Target)}, " ")), " ")
			text := fmt.Sprintf("proved: entry %d of %d in %s: %s, %s, principal %s, at %s", e.Seq, signed.Size, signed.Origin, about, e.Verdict, view.Printable(e.Principal), e.Time.Format(time.RFC3339))
			if e.Reason != "" {
				text += ": " + view.Printable(e.Reason)
			}
			_, err = fmt.Fprintln(s.out, text)
			return err
		},
	}
	c.Flags().StringVar(&key, "key", "", "the verifier key of the log, as its operator has noted it down (required)")
	return c
}

func readProof(path string) (p witness.Proof, err error) {
	f, err := os.Open(path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	none := func(why any) (witness.Proof, error) {
		return witness.Proof{}, fmt.Errorf("%s is no proof as navra blackbox prove writes it: %v", path, why)
	}
	var in proofFile
	dec := json.NewDecoder(io.LimitReader(f, maxProof))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return none(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return none("something follows it")
	}
	p = witness.Proof{Entry: []byte(in.Entry), Checkpoint: []byte(in.Checkpoint)}
	for _, text := range in.Path {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != 32 {
			return none("its path holds what is no hash")
		}
		p.Path = append(p.Path, [32]byte(b))
	}
	return p, nil
}

// openLog opens the database to be read, and says where its key lies.
func (o *storeFlags) openLog(ctx context.Context, s std) (db database, keyPath string, err error) {
	return o.openKeyed(ctx, s, true)
}

func (o *storeFlags) openKeyed(ctx context.Context, s std, readOnly bool) (db database, keyPath string, err error) {
	db, f, err := o.open(ctx, s, readOnly)
	if err != nil {
		return nil, "", err
	}
	path := o.store
	if path == "" && f != nil {
		switch keyPath = f.Key; {
		case keyPath != "":
		case f.Database.Name != "":
			keyPath = databaseKey(f)
		default:
			path = f.Store
		}
	}
	if keyPath == "" {
		if path == "" {
			if path, err = defaultStore(); err != nil {
				return nil, "", errors.Join(err, db.Close())
			}
		}
		keyPath = path + ".key"
	}
	return db, keyPath, nil
}
