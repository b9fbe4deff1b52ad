// ioredis: ready check, custom commands, pipelines, transactions, tokens. Arguments: the port of a server without
// tokens, and the port of one with the token `secret`.
const assert = require('node:assert/strict')
const Redis = require('ioredis')

const [open, closed] = process.argv.slice(2).map(Number)
const slow = [2, 3, 86_400]

async function decides(redis) {
  assert.deepEqual(await redis.call('CL.THROTTLE', 'user:1', 15, 30, 60), [0, 16, 15, -1, 2])
  assert.deepEqual((await redis.call('CL.THROTTLE', 'all', ...slow, 3)).slice(0, 4), [0, 3, 0, -1])
  const [limited, , , retryAfter] = await redis.call('CL.THROTTLE', 'all', ...slow)
  assert.ok(limited === 1 && retryAfter > 28_000 && retryAfter <= 28_800)
  assert.deepEqual((await redis.call('TIDE.CHECK', '5/day', 'bob', 'COST', 2)).slice(0, 4), [1, 5, 3, 0])
  await assert.rejects(redis.call('CL.THROTTLE', 'k'), /Usage: cl.throttle/)
  await assert.rejects(redis.set('a', 'b'), /unknown command/)
  const key = Buffer.from([0xff, 0x00, 0x0d, 0x0a])
  assert.deepEqual((await redis.call('CL.THROTTLE', key, 0, 1, 60)).slice(0, 3), [0, 1, 0])
  assert.equal((await redis.call('CL.THROTTLE', key, 0, 1, 60))[0], 1)
}

async function pipelines(redis) {
  for (const begin of ['pipeline', 'multi']) {
    const pipe = redis[begin]()
    for (let i = 0; i < 1_000; i++) pipe.call('CL.THROTTLE', begin, 9, 10, 86_400)
    const answers = await pipe.exec()
    assert.equal(answers.length, 1_000)
    answers.forEach(([error, answer], i) => assert.deepEqual([error, answer[0]], [null, i < 10 ? 0 : 1]))
  }
  const automatic = new Redis({ port: open, enableAutoPipelining: true })
  const asked = Array.from({ length: 100 }, () => automatic.call('CL.THROTTLE', 'auto', 9, 10, 86_400))
  assert.equal((await Promise.all(asked)).filter(([limited]) => limited === 0).length, 10)
  await automatic.quit()
}

async function tokens() {
  const redis = new Redis({ port: closed, password: 'secret' })
  assert.equal((await redis.call('CL.THROTTLE', 'user:1', 15, 30, 60))[0], 0)
  await redis.quit()
  const anonymous = new Redis({ port: closed, password: 'guess', retryStrategy: null })
  anonymous.on('error', () => {})
  await assert.rejects(anonymous.ping())
  anonymous.disconnect()
}

async function main() {
  const redis = new Redis({ port: open, connectionName: 'tests' })
  await new Promise((ready) => redis.once('ready', ready))
  assert.match(await redis.info(), /^redis_version:7/m)
  assert.equal(await redis.client('GETNAME'), 'tests')
  await decides(redis)
  await pipelines(redis)
  await redis.quit()
  await tokens()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
