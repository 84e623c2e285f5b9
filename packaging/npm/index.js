// A Snug server as an object.
//
// The server is a process of its own, on a free port of 127.0.0.1. It is ready when it
// answers under its own process id: another server that took the port meanwhile is not
// mistaken for it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

export class ServerError extends Error {}

export function program() {
  return process.env.SNUG_PROGRAM || fileURLToPath(new URL('./bin/snug', import.meta.url));
}

// Servers that run: they end with this process.
const running = new Set();
process.on('exit', () => {
  for (const server of running) server.abandon();
});

export class Server {
  host = '127.0.0.1';
  #options;
  #process;
  #folder;
  #ownFolder;

  constructor(options = {}) {
    this.#options = { startupSeconds: 30, parameters: {}, ...options };
    this.port = options.port || 0;
  }

  get running() {
    const child = this.#process;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  get pid() {
    return this.#process?.pid;
  }

  get url() {
    const { password } = this.#options;
    const secret = password ? `:${encodeURIComponent(password)}@` : '';
    return `redis://${secret}${this.host}:${this.port}/0`;
  }

  get log() {
    try {
      return fs.readFileSync(path.join(this.#folder, 'snug.log'), 'utf8');
    } catch {
      return '';
    }
  }

  async start() {
    if (this.running) return this;
    // A free port may be taken by somebody else before the server has it.
    const tries = this.#options.port ? 1 : 5;
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#startOnce();
        return this;
      } catch (error) {
        if (attempt === tries || !String(error.message).includes("can't bind")) throw error;
      }
    }
  }

  async stop(seconds = 30) {
    const child = this.#process;
    if (child && this.running) {
      const ended = once(child, 'exit');
      const kill = setTimeout(() => child.kill('SIGKILL'), seconds * 1000);
      child.kill('SIGTERM');
      await ended;
      clearTimeout(kill);
    }
    running.delete(this);
    this.#process = undefined;
    this.#removeFolder();
  }

  async restart() {
    this.#options.port = this.port;
    await this.stop();
    return this.start();
  }

  async flush() {
    await this.#ask('FLUSHALL');
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.stop();
  }

  /** For the end of this process, where nothing can be waited for. */
  abandon() {
    this.#process?.kill('SIGTERM');
    this.#removeFolder();
  }

  #removeFolder() {
    if (this.#ownFolder) fs.rmSync(this.#folder, { recursive: true, force: true });
    this.#ownFolder = false;
  }

  async #startOnce() {
    const { directory, parameters, password } = this.#options;
    if (directory) {
      this.#folder = path.resolve(directory);
      fs.mkdirSync(this.#folder, { recursive: true });
    } else if (!this.#ownFolder) {
      this.#folder = fs.mkdtempSync(path.join(os.tmpdir(), 'snugdb-'));
      this.#ownFolder = true;
    }
    this.port = this.#options.port || (await freePort(this.host));
    const wanted = directory ? parameters : { save: '', ...parameters };
    const flags = ['serve', '--port', this.port, '--bind', this.host, '--dir', this.#folder, '--daemonize', 'no'];
    if (password) flags.push('--requirepass', password);
    for (const [name, value] of Object.entries(wanted)) {
      flags.push(`--${name}`, typeof value === 'boolean' ? (value ? 'yes' : 'no') : value);
    }
    const log = fs.openSync(path.join(this.#folder, 'snug.log'), 'w');
    const child = spawn(program(), flags.map(String), { stdio: ['ignore', log, log] });
    fs.closeSync(log);
    this.#process = child;
    running.add(this);
    let failed;
    child.once('error', (error) => {
      failed = error;
    });
    // The process of whoever uses it may end while the server runs.
    child.unref();
    try {
      await this.#wait(() => failed);
    } catch (error) {
      const said = this.log.slice(-2000).trim();
      await this.stop();
      throw error instanceof ServerError ? new ServerError(`${error.message}: ${said}`) : error;
    }
  }

  async #wait(failed) {
    const deadline = Date.now() + this.#options.startupSeconds * 1000;
    while (Date.now() < deadline) {
      if (failed()) throw failed();
      if (!this.running) throw new ServerError(`the server ended with ${this.#process.exitCode}`);
      const answer = await this.#ask('INFO', 'server', 'persistence').catch(() => '');
      if (answer.includes(`process_id:${this.pid}\r`) && answer.includes('\nloading:0')) return;
      await sleep(10);
    }
    throw new ServerError(`the server was not ready after ${this.#options.startupSeconds} seconds`);
  }

  /** What the server answers to one command, as text. */
  async #ask(...words) {
    const { password } = this.#options;
    const requests = [...(password ? [['AUTH', password]] : []), words];
    const socket = net.connect(this.port, this.host);
    socket.setTimeout(5000, () => socket.destroy(new Error('no answer')));
    let text = '';
    try {
      socket.end(requests.map(encoded).join(''));
      for await (const part of socket) text += part;
    } finally {
      socket.destroy();
    }
    return text;
  }
}

function encoded(words) {
  const strings = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
  return `*${words.length}\r\n${strings.join('')}`;
}

/** A port that nobody has at the moment. */
async function freePort(host) {
  const probe = net.createServer();
  probe.listen(0, host);
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}
