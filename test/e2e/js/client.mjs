// Drives an MCP server with the official TypeScript SDKs, for navra's end-to-end tests.
//   node client.mjs v1|v2 everything|files|both|resume legacy|modern (URL TOKEN | -- COMMAND ARG...)
// v1 is @modelcontextprotocol/sdk, v2 is @modelcontextprotocol/client. 'both' is server-everything
// as upstream 'old' and the Go SDK's everything-server as 'new'; 'resume' is a long call over connections that break off. Prints a line for each check, and
// ends with 'N passed, N failed'.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

const [sdk, kind, era, ...target] = process.argv.slice(2);
const req = createRequire(process.cwd() + '/package.json');
const load = p => import(pathToFileURL(req.resolve(p)).href);
let Client, Http, Stdio;
if (sdk === 'v1') {
  ({ Client } = await load('@modelcontextprotocol/sdk/client/index.js'));
  ({ StreamableHTTPClientTransport: Http } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js'));
  ({ StdioClientTransport: Stdio } = await load('@modelcontextprotocol/sdk/client/stdio.js'));
} else {
  ({ Client, StreamableHTTPClientTransport: Http } = await load('@modelcontextprotocol/client'));
  ({ StdioClientTransport: Stdio } = await load('@modelcontextprotocol/client/stdio'));
}
const options = { capabilities: {} };
if (era === 'modern') options.versionNegotiation = { mode: { pin: '2026-07-28' } };
const c = new Client({ name: 'navra-test', version: '1' }, options);
const transport = target[0] === '--'
  ? new Stdio({ command: target[1], args: target.slice(2), env: process.env, stderr: 'inherit' })
  : new Http(new URL(target[0]), { requestInit: { headers: { Authorization: 'Bearer ' + target[1] } } });

let passed = 0, failed = 0;
async function check(name, f) {
  let timer;
  try {
    await Promise.race([f(), new Promise((_, no) => { timer = setTimeout(() => no(new Error('no end within 30 s')), 30000); })]);
    passed++;
    console.log('ok   ' + name);
  } catch (e) {
    failed++;
    console.log('FAIL ' + name + ': ' + (e && e.stack || e));
  } finally { clearTimeout(timer); }
}
const must = (ok, what) => { if (!ok) throw new Error(typeof what === 'string' ? what : JSON.stringify(what)); };
const call = (name, args, o) => sdk === 'v1' ? c.callTool({ name, arguments: args }, undefined, o) : c.callTool({ name, arguments: args }, o);

let up = false;
await check('connect', async () => { await c.connect(transport); up = true; });
if (up && era === 'modern') await check('era', async () => must(c.getNegotiatedProtocolVersion() === '2026-07-28', c.getNegotiatedProtocolVersion()));
if (up && kind === 'everything') {
  await check('list', async () => {
    const { tools } = await c.listTools();
    for (const n of ['echo', 'get-sum', 'trigger-long-running-operation']) must(tools.some(t => t.name === n), tools.map(t => t.name));
  });
  await check('call', async () => {
    const r = await call('echo', { message: 'hé "x"\n' });
    must(!r.isError && r.content[0].text.includes('hé "x"\n'), r);
  });
  await check('resource', async () => {
    const { resources } = await c.listResources();
    must(resources.length > 0, 'no resources');
    const { contents } = await c.readResource({ uri: resources[0].uri });
    must(contents[0].uri === resources[0].uri && (contents[0].text || contents[0].blob), contents);
  });
  await check('prompt', async () => {
    const { prompts } = await c.listPrompts();
    must(prompts.some(p => p.name === 'simple-prompt'), prompts.map(p => p.name));
    const g = await c.getPrompt({ name: 'simple-prompt' });
    must(g.messages.length > 0, g);
  });
  await check('progress', async () => {
    const got = [];
    await call('trigger-long-running-operation', { duration: 1, steps: 4 }, { onprogress: p => got.push(p.progress) });
    must(got.length >= 3, got);
  });
  await check('cancel', async () => {
    const stop = new AbortController(), begun = Date.now();
    setTimeout(() => stop.abort('enough'), 300);
    let error;
    try { await call('trigger-long-running-operation', { duration: 20, steps: 20 }, { signal: stop.signal }); } catch (e) { error = e; }
    must(error && Date.now() - begun < 5000, 'the call was not cut off: ' + error);
    const r = await call('echo', { message: 'after' });
    must(r.content[0].text.includes('after'), r);
  });
  await check('unknown', async () => {
    let error;
    try { await call('no-such-tool', {}); } catch (e) { error = e; }
    must(error && error.code === -32602, 'got ' + error);
  });
}
if (up && kind === 'files') {
  await check('list', async () => {
    const { tools } = await c.listTools();
    for (const n of ['read_text_file', 'write_file', 'list_directory']) must(tools.some(t => t.name === n), tools.map(t => t.name));
  });
  await check('call', async () => {
    const r = await call('list_directory', { path: '.' });
    must(!r.isError && r.content[0].text.includes('hello.txt'), r);
    const t = await call('read_text_file', { path: 'hello.txt' });
    must(!t.isError && t.content[0].text.includes('hello from the file'), t);
  });
}
if (up && kind === 'both') {
  await check('list', async () => {
    const { tools } = await c.listTools();
    for (const n of ['old__echo', 'old__get-sum', 'new__test_simple_text']) must(tools.some(t => t.name === n), tools.map(t => t.name));
  });
  await check('call old', async () => {
    const r = await call('old__echo', { message: 'hé "x"\n' });
    must(!r.isError && r.content[0].text.includes('hé "x"\n'), r);
  });
  await check('call new', async () => {
    const r = await call('new__test_simple_text', {});
    must(!r.isError && r.content[0].text.includes('simple text response'), r);
  });
  await check('resources', async () => {
    const uris = (await c.listResources()).resources.map(r => r.uri);
    must(uris.includes('test://static-text'), uris);
    for (const uri of [uris.find(u => u.startsWith('demo://')), 'test://static-text']) {
      const { contents } = await c.readResource({ uri });
      must(contents[0].uri === uri && contents[0].text, contents);
    }
  });
  await check('prompts', async () => {
    const names = (await c.listPrompts()).prompts.map(p => p.name);
    for (const name of ['old__simple-prompt', 'new__test_simple_prompt']) {
      must(names.includes(name), names);
      const g = await c.getPrompt({ name });
      must(g.messages[0].content.text.includes('simple prompt'), g);
    }
  });
  await check('progress', async () => {
    for (const [name, args] of [['old__trigger-long-running-operation', { duration: 1, steps: 4 }], ['new__test_tool_with_progress', {}]]) {
      const got = [];
      await call(name, args, { onprogress: p => got.push(p.progress) });
      must(got.length >= 2, name + ' ' + got);
    }
  });
  await check('unknown', async () => {
    for (const name of ['old__no-such-tool', 'new__no-such-tool', 'no-such-tool']) {
      let error;
      try { await call(name, {}); } catch (e) { error = e; }
      must(error && error.code === -32602, name + ': got ' + error);
    }
  });
}
if (up && kind === 'resume') await check('resume', async () => {
  const got = [];
  const r = await call('odd__work', { steps: 40, ms: 100 }, { onprogress: p => got.push(p.progress), timeout: 25000 });
  must(!r.isError && r.content[0].text === 'done', r);
  must(got.join() === Array.from({ length: 40 }, (_, i) => i + 1).join(), got);
});
if (up && kind === 'both') await check('subscription', async () => {
  const updates = [], note = n => updates.push(n.params.uri);
  if (sdk === 'v1') c.setNotificationHandler((await load('@modelcontextprotocol/sdk/types.js')).ResourceUpdatedNotificationSchema, note);
  else c.setNotificationHandler('notifications/resources/updated', note);
  const uri = (await c.listResources()).resources.map(r => r.uri).find(u => u.startsWith('demo://'));
  let listen;
  if (era === 'modern') listen = await c.listen({ toolsListChanged: true, resourceSubscriptions: [uri, 'test://static-text'] });
  else for (const u of [uri, 'test://static-text']) await c.subscribeResource({ uri: u });
  for (let i = 0; i < 8 && !updates.includes(uri); i++) { // others toggle it too
    await call('old__toggle-subscriber-updates', {});
    for (let j = 0; j < 20 && !updates.includes(uri); j++) await sleep(50);
  }
  must(updates.includes(uri), updates);
  if (listen) await listen.close();
  else for (const u of [uri, 'test://static-text']) await c.unsubscribeResource({ uri: u });
});
if (up) await check('close', async () => { await c.close(); await sleep(50); });
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
