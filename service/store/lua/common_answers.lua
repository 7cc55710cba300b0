-- Shared by the functions that answer requests for pages, after common_choice.lua: answers kept for retries, beside
-- the control hash. Defines only locals.
--   <control>:answers:<n>  hash: answers by request id, of one generation; while a request is under way, until when
--                          none else may try ('<d', ms)
-- Answers of a generation share a key, so that many are read or kept by one command and none has to be removed by
-- itself.

local NOTHING = '-'  -- kept for a part of a request that got no page: neither does it when it comes again

local WAIT = '~'  -- told where a first try is under way elsewhere

-- Until when nobody else may try, as it is kept for a request.
local function under_way(until_ms) return packed('<d', until_ms) end

-- What is told of what is kept: an answer, or '' for nothing.
local function told(kept) return kept == NOTHING and '' or kept == '' and WAIT or kept or '' end

local kept_answers, keep_answers, forget_answer
do
  local ANSWERS_MS = 30000  -- of a generation
  local OLD_ANSWERS = 2  -- generations before this one that are looked through: an answer is kept for a minute or more

  local function answers_key(control, generation) return control .. ':answers:' .. string.format('%d', generation) end

  -- Whatever is kept for one id: the answer, '' while its first try is under way, nil once that has taken too long.
  local function answer_in(kept, now)
    if kept and #kept == 8 then return fields_of('<d', kept) > now and '' or nil end
    return kept or nil
  end

  -- What is kept for these ids, in their order.
  function kept_answers(control, ids, now)
    local answers, generation = {}, floor(now / ANSWERS_MS)
    for age = 0, OLD_ANSWERS do
      local found = redis_call('HMGET', answers_key(control, generation - age), unpack(ids))
      for at = 1, #ids do answers[at] = answers[at] or answer_in(found[at], now) end
    end
    return answers
  end

  -- Keeps answers: {id, answer, ...}.
  function keep_answers(control, answers, now)
    if #answers == 0 then return end
    local generation = floor(now / ANSWERS_MS)
    local key = answers_key(control, generation)
    redis_call('HSET', key, unpack(answers))
    if generations[control] ~= generation then
      generations[control] = generation
      redis_call('PEXPIRE', key, (OLD_ANSWERS + 1) * ANSWERS_MS)
      -- It would expire by itself, but where the server does not free memory beside its work all others would wait.
      redis_call('UNLINK', answers_key(control, generation - OLD_ANSWERS - 1))
    end
  end

  -- A try that came to nothing may be repeated at once.
  function forget_answer(control, id, now)
    local generation = floor(now / ANSWERS_MS)
    for age = 0, 1 do redis_call('HDEL', answers_key(control, generation - age), id) end
    generations[control] = nil  -- an emptied hash is gone, and so is when it was to expire
  end
end
