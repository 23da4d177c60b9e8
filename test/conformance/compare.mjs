// node compare.mjs RESULTS REQUIREMENTS.yaml MISSING.txt
// Compares what the conformance suite wrote below RESULTS with what the revision requires. MISSING.txt names the required
// scenarios that do not pass, each with what it waits for: "NAME  REASON". A scenario passes with at least one check that
// succeeded and none that failed: where a gateway hides a capability, checks are skipped, and that is no pass.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const [results, requirements, missingFile] = process.argv.slice(2);

const required = [];
let section = '';
for (const line of readFileSync(requirements, 'utf8').split('\n')) {
	section = /^(\w+):/.exec(line)?.[1] ?? section;
	const item = /^\s+- (\S+)\s*$/.exec(line)?.[1];
	if (section === 'server' && item) required.push(item);
}

const missing = new Map();
for (const line of readFileSync(missingFile, 'utf8').split('\n')) {
	const m = /^([\w-]+)\s+(\S.*)$/.exec(line);
	if (m && !line.startsWith('#')) missing.set(m[1], m[2]);
}

const checks = new Map();
for (const file of readdirSync(results, { recursive: true }).filter((f) => f.endsWith('checks.json'))) {
	const name = dirname(file).replace(/-\d{4}-\d\d-\d\dT[\d-]+Z?$/, '').replace(/^server-/, '');
	checks.set(name, JSON.parse(readFileSync(join(results, file), 'utf8')));
}

function passes(name) {
	const list = checks.get(name) ?? checks.get(name.replace(/^server-/, '')) ?? [];
	const has = (status) => list.some((c) => c.status.toUpperCase() === status);
	return has('SUCCESS') && !has('FAILURE');
}

let wrong = 0;
const passed = required.filter(passes);
for (const name of required) {
	const list = checks.get(name) ?? checks.get(name.replace(/^server-/, '')) ?? [];
	if (passes(name) === missing.has(name)) {
		wrong++;
		console.log(passes(name) ? `${name} passes now: take it out of ${missingFile}` : `${name} does not pass:`);
		for (const c of list.filter((c) => c.status.toUpperCase() === 'FAILURE')) console.log(`    ${c.id}: ${String(c.errorMessage ?? c.description).slice(0, 400)}`);
	}
}
console.log(`conformance: ${passed.length} of the ${required.length} required scenarios pass; ${missing.size} are known to be missing`);
process.exit(wrong ? 1 : 0);
