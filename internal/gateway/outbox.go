package gateway

import (
	"sync"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// maxBeneath bounds the resources beneath subscribed ones that wait to be told of to one client. Beyond it the subscribed resource itself is
// told of, which bounds what waits without anything being lost: a client that is slow, or away, hears of each once, and of some less precisely.
const maxBeneath = 32

// An outbox holds what one client is still to be told, each thing once. Its methods may be called concurrently.
type outbox struct {
	wake chan struct{} // room for one; filled when there is something to tell

	mu     sync.Mutex
	topics []mcp.Topic // guarded by mu
	news   []notice    // guarded by mu
}

// A notice is news of what one watches.
type notice struct {
	news  chokepoint.News
	watch chokepoint.Watch
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) ring() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// list notes that the list of a topic is to be told of.
func (o *outbox) list(t mcp.Topic) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, has := range o.topics {
		if has == t {
			return
		}
	}
	o.topics = append(o.topics, t)
	o.ring()
}

// resource notes that a resource is to be told of.
func (o *outbox) resource(n notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	beneath := 0
	for _, has := range o.news {
		if has.news == n.news || has.watch == n.watch && has.news.Exact(has.watch) {
			return // that one has changed says that what is beneath it may have
		}
		if !has.news.Exact(has.watch) {
			beneath++
		}
	}
	if !n.news.Exact(n.watch) && beneath >= maxBeneath {
		n.news = n.watch.Missed()
	}
	o.news = append(o.news, n)
	o.ring()
}

// take returns all that is to be told, and keeps none of it.
func (o *outbox) take() (topics []mcp.Topic, news []notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	topics, news = o.topics, o.news
	o.topics, o.news = nil, nil
	return topics, news
}

// back puts what could not be told in again.
func (o *outbox) back(topics []mcp.Topic, news []notice) {
	for _, t := range topics {
		o.list(t)
	}
	for _, n := range news {
		o.resource(n)
	}
}
