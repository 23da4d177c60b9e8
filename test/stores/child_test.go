// Package stores holds both databases against what several real processes do to them at once: one chain, and no label that is older than a raise.
package stores

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
	"navra/internal/store/postgres"
	"navra/internal/store/sqlite"
	server "navra/test/postgres"
)

// When set, this test binary is another process: it opens the store that it names and does what it reads from stdin.
const childOf = "NAVRA_TEST_CHILD_OF"

func TestMain(m *testing.M) {
	if where := os.Getenv(childOf); where != "" {
		if err := child(where); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A database is what is tried of either.
type database interface {
	store.Store
	store.Log
	OnCommit(func(store.Receipt) error)
	Verify(context.Context) (blackbox.Report, error)
	Close() error
}

// open opens "sqlite FOLDER" or "postgres FOLDER URL"; the folder's name makes the schema, and its heads file is kept.
func open(where string) (database, error) {
	kind, rest, _ := strings.Cut(where, " ")
	dir, url, _ := strings.Cut(rest, " ")
	ctx := context.Background()
	if kind == "sqlite" {
		return sqlite.Open(ctx, filepath.Join(dir, "navra.db"), sqlite.Options{})
	}
	return postgres.Open(ctx, url, postgres.Options{Schema: "t_" + filepath.Base(dir)})
}

func headsOf(where string) string { return filepath.Join(strings.Fields(where)[1], "navra.db.heads") }

func tag(b []byte) [32]byte { return blackbox.Hash(b) } // nobody is kept out here

// child does each line in a goroutine of its own and answers it with one line, under the line's first word.
func child(where string) error {
	db, err := open(where)
	if err != nil {
		return err
	}
	h, err := heads.Open(headsOf(where), tag, false)
	if err != nil {
		return err
	}
	db.OnCommit(func(r store.Receipt) error { return h.Note(r.Seq, r.Hash) })
	var all sync.WaitGroup
	var mu sync.Mutex
	var calls caller
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		id, order, _ := strings.Cut(lines.Text(), " ")
		all.Go(func() {
			said := obey(db, &calls, order)
			mu.Lock()
			defer mu.Unlock()
			fmt.Println(id, said)
		})
	}
	all.Wait()
	return errors.Join(lines.Err(), db.Close(), h.Close())
}

// obey does one order:
//
//	append NAME N     N entries with methods NAME-0 …, by 16 callers
//	raise SCOPE SOURCE  an outcome that raises a scope's label
//	permit SCOPE VERSION LABEL  a permit that was judged on that; judged again where that is stale
//	calls, stop       principals begin to call, and end: how often they did
//	judge SCOPE       a permit that is judged inside the commit
func obey(db database, calls *caller, order string) string {
	var verb, id, more string
	fmt.Sscan(order, &verb, &id, &more)
	var err error
	var said any
	switch verb {
	case "append":
		err = appendMany(db, id, more)
	case "raise":
		said, err = raise(db, scope.ID(id), more)
	case "permit":
		said, err = permit(db, scope.ID(id), more)
	case "calls":
		err = calls.begin(db)
	case "stop":
		said, err = calls.end()
	case "judge":
		said, err = judged(db, scope.ID(id))
	default:
		err = fmt.Errorf("unknown order %q", order)
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprint("ok ", said)
}

func appendMany(db database, name, count string) error {
	n := 0
	if _, err := fmt.Sscan(count, &n); err != nil {
		return err
	}
	const callers = 16
	errs := make([]error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := c; i < n && errs[c] == nil; i += callers {
				e := blackbox.Entry{Kind: blackbox.Request, Time: time.Now(), Method: fmt.Sprint(name, "-", i)}
				e.Payloads = []blackbox.Payload{blackbox.NewPayload("arguments", []byte(e.Method), []byte(e.Method))}
				_, errs[c] = db.Commit(context.Background(), store.Commit{Entry: e, Raise: ifc.Bottom()})
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// told is what an entry says of its scope's label, in a form that can be read again.
func told(s scope.Scope, kind blackbox.Kind, raise ifc.Label) blackbox.Entry {
	before, _ := s.Label.MarshalText()
	after, _ := s.Label.Join(raise).MarshalText()
	return blackbox.Entry{Kind: kind, Time: time.Now(), Scope: string(s.ID), Before: string(before), After: string(after)}
}

// commit judges until the scope stands still, as the chokepoint does: the third time inside the commit.
func commit(db database, s scope.Scope, kind blackbox.Kind, raise ifc.Label) (store.Receipt, int, error) {
	for try := 0; ; try++ {
		c := store.Commit{Scope: s.ID, IfScope: s.Version, Entry: told(s, kind, raise), Raise: raise}
		if try == 2 {
			c.Judge = func(s scope.Scope, _ *store.Controls) (blackbox.Entry, ifc.Label) { return told(s, kind, raise), raise }
		}
		r, err := db.Commit(context.Background(), c)
		if !errors.Is(err, store.ErrStale) {
			return r, try, err
		}
		if s, err = db.Scope(context.Background(), scope.Opening{ID: s.ID}); err != nil {
			return r, try, err
		}
	}
}

func raise(db database, id scope.ID, source string) (blackbox.Seq, error) {
	s, err := db.Scope(context.Background(), scope.Opening{ID: id})
	if err != nil {
		return 0, err
	}
	r, _, err := commit(db, s, blackbox.Answer, ifc.Of(source, ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Secret}))
	return r.Seq, err
}

// permit commits on a version and a label that were read before, and says how often they were stale.
func permit(db database, id scope.ID, read string) (string, error) {
	var version scope.Version
	var text string
	if _, err := fmt.Sscanf(strings.Replace(read, "/", " ", 1), "%d %s", &version, &text); err != nil {
		return "", err
	}
	s := scope.Scope{ID: id, Version: version}
	if err := s.Label.UnmarshalText([]byte(text)); err != nil {
		return "", err
	}
	r, stale, err := commit(db, s, blackbox.Request, ifc.Bottom())
	return fmt.Sprint(r.Seq, " ", stale), err
}

func judged(db database, id scope.ID) (blackbox.Seq, error) {
	r, err := db.Commit(context.Background(), store.Commit{Scope: id, Judge: func(s scope.Scope, _ *store.Controls) (blackbox.Entry, ifc.Label) {
		return told(s, blackbox.Request, ifc.Bottom()), ifc.Bottom()
	}})
	return r.Seq, err
}

// A process is a child and the orders that it has not answered.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser

	mu      sync.Mutex
	next    int
	waiting map[string]chan string
}

func start(t *testing.T, where string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0]), waiting: map[string]chan string{}}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), childOf+"="+where), os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			id, said, _ := strings.Cut(lines.Text(), " ")
			p.answer(id, said)
		}
		p.answer("", "error: the process is gone")
	}()
	t.Cleanup(func() {
		p.in.Close()
		<-done
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// answer hands an answer to who waits for it; all do under "".
func (p *process) answer(id, said string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, ch := range p.waiting {
		if id == "" || id == key {
			ch <- said
			delete(p.waiting, key)
		}
	}
}

// tell gives an order and returns where its answer will come.
func (p *process) tell(order string) chan string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	id, ch := fmt.Sprint("o", p.next), make(chan string, 1)
	p.waiting[id] = ch
	if _, err := fmt.Fprintln(p.in, id, order); err != nil {
		ch <- "error: " + err.Error()
		delete(p.waiting, id)
	}
	return ch
}

// done is what an order came to.
func (p *process) done(ch chan string) string {
	said := <-ch
	text, ok := strings.CutPrefix(said, "ok ")
	if !ok {
		p.t.Error(said)
	}
	return text
}

// size is few, or many where NAVRA_SOAK=full.
func size(few, many int) int {
	if os.Getenv("NAVRA_SOAK") == "full" {
		return many
	}
	return few
}

// both runs a test on a store of each kind.
func both(t *testing.T, f func(t *testing.T, where string, replicas int)) {
	t.Run("four processes on one SQLite file", func(t *testing.T) { f(t, "sqlite "+t.TempDir(), 4) })
	t.Run("three replicas on one PostgreSQL database", func(t *testing.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "s")
		if err != nil {
			t.Fatal(err)
		}
		f(t, "postgres "+dir+" "+server.Start(t), 3)
	})
}
