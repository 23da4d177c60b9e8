package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// used is what the tables take up with their indexes. Of payloads, whose table keeps its length when some are dropped, it is no more than what
// those that are there would take up in a new one (once the server has looked): their number as it counts it, by the mean size of the newest, and a fourth for gaps.
const used = `SELECT (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname <> 'payloads')
	+ least(pg_total_relation_size(p.oid), CASE WHEN p.reltuples >= 0 THEN (SELECT greatest(p.reltuples, pg_stat_get_live_tuples(p.oid)) * 1.25 *
		(SELECT coalesce(avg(100 + pg_column_size(stored) + pg_column_size(stored_salt) + pg_column_size(whole_salt)), 0) FROM (SELECT * FROM @payloads ORDER BY seq DESC LIMIT 200) AS newest)
		+ 65536)::bigint END)
	FROM pg_class p JOIN pg_namespace n ON n.oid = p.relnamespace WHERE n.nspname = $1 AND p.relname = 'payloads'`

// Room implements store.Log. Of the server's disk nothing is known.
func (db *DB) Room(ctx context.Context) (r store.Room, err error) {
	if err := db.row(ctx, used, db.schema).Scan(&r.Used); err != nil {
		return r, fmt.Errorf("room: %w", db.clean(err))
	}
	return r, nil
}

// Turn implements store.Log.
func (db *DB) Turn(ctx context.Context, name string, every time.Duration) (bool, error) {
	now := db.now()
	stamp := func(t time.Time) []byte { return fmt.Appendf(nil, "%020d", t.UnixMicro()) }
	n, err := db.exec(ctx, `INSERT INTO @kept AS k (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value
		WHERE k.value <= $3 OR k.value > $4`, "turn "+name, stamp(now), stamp(now.Add(-every)), stamp(now.Add(every))) // one of a clock that was put back is none
	return n == 1, err
}

// DropPayloads implements store.Log. The last of a series has the server note what is free now.
func (db *DB) DropPayloads(ctx context.Context, below blackbox.Seq, limit int) (n int, err error) {
	err = db.tx(ctx, 0, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, db.in(`WITH gone AS (
				DELETE FROM @payloads WHERE seq IN (SELECT DISTINCT seq FROM @payloads WHERE seq < $1 ORDER BY seq LIMIT $2) RETURNING seq
			) SELECT count(DISTINCT seq) FROM gone`), int64(below), max(limit, 0)).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("payloads: %w", err)
	}
	if n > 0 && n < limit {
		if _, err := db.pool.Exec(ctx, db.in("VACUUM (ANALYZE) @payloads")); err != nil {
			return n, fmt.Errorf("payloads: %w", db.clean(err))
		}
	}
	return n, nil
}
