// node-redis: both protocols, automatic pipelines, transactions, tokens. Arguments: the port of a server without
// tokens, and the port of one with the token `secret`.
const assert = require('node:assert/strict')
const { createClient } = require('redis')

const [open, closed] = process.argv.slice(2).map(Number)
const slow = ['2', '3', '86400']

function client(port, options) {
  return createClient({ socket: { host: '127.0.0.1', port, reconnectStrategy: false }, ...options })
}

async function decides(redis, name) {
  const ask = (...words) => redis.sendCommand(words)
  assert.deepEqual(await ask('CL.THROTTLE', name, '15', '30', '60'), [0, 16, 15, -1, 2])
  assert.deepEqual((await ask('CL.THROTTLE', `${name}:slow`, ...slow, '3')).slice(0, 4), [0, 3, 0, -1])
  const [limited, , , retryAfter] = await ask('CL.THROTTLE', `${name}:slow`, ...slow)
  assert.ok(limited === 1 && retryAfter > 28_000 && retryAfter <= 28_800)
  assert.deepEqual((await ask('TIDE.CHECK', '5/day', name, 'COST', '2')).slice(0, 4), [1, 5, 3, 0])
  await assert.rejects(ask('CL.THROTTLE', 'k'), /Usage: cl.throttle/)
  await assert.rejects(redis.set('a', 'b'), /unknown command/)
}

async function pipelines(redis, name) {
  // node-redis sends all commands of one tick as one pipeline.
  const asked = Array.from({ length: 1_000 }, () => redis.sendCommand(['CL.THROTTLE', `${name}:pipe`, '9', '10', '86400']))
  assert.equal((await Promise.all(asked)).filter(([limited]) => limited === 0).length, 10)
  const multi = redis.multi()
  for (let i = 0; i < 100; i++) multi.addCommand(['CL.THROTTLE', `${name}:multi`, '9', '10', '86400'])
  const answers = await multi.exec()
  answers.forEach(([limited], i) => assert.equal(limited, i < 10 ? 0 : 1))
}

async function tokens() {
  const redis = await client(closed, { password: 'secret' }).connect()
  assert.equal((await redis.sendCommand(['CL.THROTTLE', 'user:1', '15', '30', '60']))[0], 0)
  await redis.close()
  const anonymous = client(closed, { password: 'guess' })
  anonymous.on('error', () => {})
  await assert.rejects(anonymous.connect(), /WRONGPASS/)
}

async function main() {
  for (const RESP of [2, 3]) {
    const redis = await client(open, { RESP, name: 'tests' }).connect()
    assert.equal(await redis.clientGetName(), 'tests')
    await decides(redis, `user:${RESP}`)
    await pipelines(redis, `user:${RESP}`)
    await redis.close()
  }
  await tokens()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
