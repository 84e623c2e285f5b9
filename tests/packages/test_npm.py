"""The npm package, installed into a folder of its own and used as its page says."""

import re
import shutil

import pytest

from .conftest import ROOT, run

pytestmark = [pytest.mark.snug_only, pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")]

CHECKS = """
import assert from 'node:assert';
import fs from 'node:fs';
import net from 'node:net';
import test from 'node:test';
import { Server, ServerError, program } from 'snugdb';

function ask(server, ...words) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(server.port, server.host);
    let text = '';
    socket.on('data', (part) => { text += part; });
    socket.on('end', () => resolve(text)).on('error', reject);
    socket.end(words.join(' ') + '\\r\\n');
  });
}

test('runs, with parameters', async () => {
  const server = await new Server({ parameters: { maxmemory: '64mb', pack: false } }).start();
  assert.equal(server.url, `redis://127.0.0.1:${server.port}/0`);
  assert.equal(await ask(server, 'SET', 'k', 'v'), '+OK\\r\\n');
  assert.match(await ask(server, 'CONFIG', 'GET', 'maxmemory'), /67108864/);
  await server.flush();
  assert.equal(await ask(server, 'DBSIZE'), ':0\\r\\n');
  await server.stop();
  assert.ok(!server.running);
});

test('keeps data in a directory, and its port', async () => {
  const directory = fs.mkdtempSync('data-');
  const server = await new Server({ directory, parameters: { appendonly: true } }).start();
  const { port } = server;
  await ask(server, 'SET', 'k', 'kept');
  await server.restart();
  assert.equal(server.port, port);
  assert.match(await ask(server, 'GET', 'k'), /kept/);
  await server.stop();
});

test('two at once, and a password', async () => {
  const one = await new Server({ password: 's3 cret' }).start();
  const other = await new Server().start();
  assert.notEqual(one.port, other.port);
  assert.match(await ask(one, 'GET', 'k'), /^-NOAUTH/);
  await one[Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]();
  await other.stop();
});

test('says what is wrong', async () => {
  await assert.rejects(new Server({ parameters: { maxmemory: 'much' } }).start(), (error) => error instanceof ServerError && /maxmemory/.test(error.message));
  assert.ok(fs.existsSync(program()));
});
"""


def test_npm(binary, tmp_path):
    packed = run(ROOT / "packaging" / "npm" / "build", binary, tmp_path).strip()
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "project", "version": "1.0.0", "private": true}')
    run("npm", "install", "--offline", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", packed, cwd=folder)
    assert re.fullmatch(r"snug \d+\.\d+\.\d+\n", run(folder / "node_modules" / ".bin" / "snug", "--version"))
    (folder / "checks.test.mjs").write_text(CHECKS)
    said = run("node", "--test", "checks.test.mjs", cwd=folder)
    assert re.search(r"pass 4\b", said) and re.search(r"fail 0\b", said), said
    page = (ROOT / "packaging" / "npm" / "README.md").read_text()
    (block,) = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    (folder / "page.mjs").write_text(block)
    assert "redis://127.0.0.1:" in run("node", "page.mjs", cwd=folder)
