// What the conformance suite found, as a table, and held against what is expected.
//
//	node table.mjs scenarios VERSION REQUIREMENTS.yaml
//	node table.mjs compare RESULTS REQUIREMENTS-FOLDER PAGE "-update" or "" CELL...
//
// CELL.txt beside this file names what does not pass in a cell, each with its reason: "NAME  REASON". A scenario passes with at least one check
// that succeeded and none that failed: where a gateway hides a capability, checks are skipped, and that is no pass.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const here = dirname(process.argv[1]);
const [what, ...args] = process.argv.slice(2);

function section(file, name) {
	const out = [];
	let now = '';
	for (const line of readFileSync(file, 'utf8').split('\n')) {
		now = /^(\w+):/.exec(line)?.[1] ?? now;
		const item = /^\s+- ([\w./-]+)\s*$/.exec(line)?.[1];
		if (now === name && item) out.push(item);
	}
	return out;
}

// The client scenarios that have to do with what navra sends; it is no OAuth client of its upstreams yet.
function clientScenarios(version, file) {
	const out = section(file, 'client').filter((s) => !s.startsWith('auth/'));
	return version === '2025-11-25' ? out : [...out, 'json-schema-2020-12-preservation'];
}

function listed(cell) {
	const out = new Map();
	const file = join(here, `${cell}.txt`);
	if (!existsSync(file)) return out;
	for (const line of readFileSync(file, 'utf8').split('\n')) {
		const m = /^([\w-]+)\s+(\S.*)$/.exec(line);
		if (m && !line.startsWith('#')) out.set(m[1], m[2]);
	}
	return out;
}

function found(dir) {
	const out = new Map();
	if (!existsSync(dir)) return out;
	for (const file of readdirSync(dir, { recursive: true }).filter((f) => f.endsWith('checks.json'))) {
		const name = dirname(file).replace(/-\d{4}-\d\d-\d\dT[\d-]+Z?$/, '');
		out.set(name, JSON.parse(readFileSync(join(dir, file), 'utf8')));
	}
	return out;
}

const has = (checks, status) => checks.some((c) => c.status.toUpperCase() === status);
const passes = (checks) => has(checks, 'SUCCESS') && !has(checks, 'FAILURE');

// cellOf returns what each scenario of a cell came to: scenario => {ok, scored}.
function cellOf(cell, results, requirements) {
	const version = cell.slice(0, 10);
	const client = cell.endsWith('-client');
	const file = join(requirements, `${version}.yaml`);
	const required = client ? clientScenarios(version, file) : section(file, 'server');
	const scored = new Set(section(file, client ? 'client' : 'server'));
	const checks = new Map();
	for (const [name, list] of found(join(results, cell))) {
		checks.set(client ? name : name.replace(/^server-/, ''), list); // the suite puts it before every name
	}
	const out = new Map();
	for (const name of new Set([...required, ...checks.keys()])) {
		const list = checks.get(name) ?? [];
		out.set(name, { ok: passes(list), scored: scored.has(name), checks: list });
	}
	return out;
}

const titles = {
	'2025-11-25-stateful': '2025-11-25, stateful server', '2025-11-25-stateless': '2025-11-25, stateless server',
	'2026-07-28-stateful': '2026-07-28, stateful server', '2026-07-28-stateless': '2026-07-28, stateless server',
	'2025-11-25-client': '2025-11-25', '2026-07-28-client': '2026-07-28',
};

function table(cells, columns, notes) {
	const names = [...new Set(columns.flatMap((c) => [...cells.get(c).keys()]))].sort();
	const rows = [['scenario', ...columns.map((c) => titles[c])], ['---', ...columns.map(() => '---')]];
	const total = ['of those that count'];
	for (const name of names) {
		const row = [name];
		for (const c of columns) {
			const got = cells.get(c).get(name);
			if (!got) {
				row.push('–');
				continue;
			}
			const why = listed(c).get(name);
			if (!got.ok && why && !notes.includes(why)) notes.push(why);
			row.push((got.ok ? 'passes' : `no [${notes.indexOf(why) + 1}]`) + (got.scored ? '' : ' *'));
		}
		rows.push(row);
	}
	for (const c of columns) {
		const counted = [...cells.get(c).values()].filter((g) => g.scored);
		total.push(`${counted.filter((g) => g.ok).length} of ${counted.length}`);
	}
	rows.push(total);
	return rows.map((r) => `| ${r.join(' | ')} |`).join('\n');
}

function compare(results, requirements, page, update, ...names) {
	const cells = new Map(names.map((c) => [c, cellOf(c, results, requirements)]));
	let wrong = 0;
	for (const [cell, scenarios] of cells) {
		const list = listed(cell);
		for (const [name, got] of scenarios) {
			if (got.ok !== list.has(name)) continue;
			wrong++;
			console.log(got.ok ? `${cell} ${name} passes now: take it out of ${cell}.txt` : `${cell} ${name} does not pass:`);
			for (const c of got.checks.filter((c) => c.status.toUpperCase() === 'FAILURE')) console.log(`    ${c.id}: ${String(c.errorMessage ?? c.description).slice(0, 400)}`);
		}
		for (const name of list.keys()) {
			if (!scenarios.has(name)) {
				wrong++;
				console.log(`${cell}.txt names ${name}, which does not run`);
			}
		}
		const all = [...scenarios.values()];
		console.log(`conformance: ${cell}: ${all.filter((g) => g.ok).length} of ${all.length} scenarios pass; ${list.size} are known not to`);
	}
	if (wrong || names.length < Object.keys(titles).length) process.exit(wrong ? 1 : 0);
	const notes = [];
	const server = table(cells, names.filter((c) => !c.endsWith('-client')), notes);
	const client = table(cells, names.filter((c) => c.endsWith('-client')), notes);
	const text = readFileSync(page, 'utf8');
	const [before, after] = [text.split('<!-- made')[0], text.split('<!-- end -->')[1]];
	const made = `<!-- made by test/conformance/run -update -->\n\nServer scenarios: the suite is the client, the official Go SDK's server the upstream.\n\n${server}\n\n`
		+ `Client scenarios: the suite is the upstream, the official Go SDK's client (2026-07-28) calls navra.\n\n${client}\n\n`
		+ `\\* runs, but the revision does not count it.\n\n${notes.map((n, i) => `${i + 1}. ${n}`).join('\n')}\n\n<!-- end -->`;
	if (before + made + after === text) return;
	if (update === '-update') {
		writeFileSync(page, before + made + after);
		return;
	}
	console.log(`${page} does not show what was found: run test/conformance/run -update`);
	process.exit(1);
}

if (what === 'scenarios') console.log(clientScenarios(...args).join('\n'));
else compare(...args);
