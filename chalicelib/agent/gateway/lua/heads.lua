-- A few fields of a request's body, read from its beginning. The body goes on unchanged, so nothing is built from it:
-- only texts at the top level of a JSON object, or the parts of a form, are looked for. A megabyte of signs takes a
-- while, so other requests have their turn in between.

local json = require "cjson.safe"

local M = {}
local LONGEST = 4096  -- bytes of a field, as it is written
local STEPS = 2000  -- signs that are read at a time
local PARTS = 100  -- of a form, among which the fields must be

local function count(steps)
    if steps < STEPS then
        return steps + 1
    end
    ngx.sleep(0)
    return 0
end

-- Where the text that begins at `from` ends, or nil if it doesn't.
local function text_end(text, from)
    local at, steps = from + 1, 0
    while true do
        steps = count(steps)
        local sign = text:find('["\\]', at)
        if not sign then
            return nil
        elseif text:byte(sign) == 34 then
            return sign
        end
        at = sign + 2
    end
end

local function plain(text, from, to)
    local value = to - from <= LONGEST and json.decode("[" .. text:sub(from, to) .. "]")
    return value and value[1] or ""
end

-- Those of `names` that are there; of two fields with one name the first counts.
function M.json(text, names)
    local found, depth, field, is_value, at, steps = {}, 0, "", false, 1, 0
    while true do
        steps = count(steps)
        local from, _, sign = text:find(depth < 2 and '(["{}%[%],:])' or '(["{}%[%]])', at)
        if not from then
            return found
        end
        at = from + 1
        if sign == '"' then
            local to = text_end(text, from)
            if not to then
                return found
            end
            if depth == 1 and not is_value then
                field = plain(text, from, to)
            elseif depth == 1 and names[field] and not found[field] then
                found[field] = plain(text, from, to)
            end
            at = to + 1
        elseif sign == ":" or sign == "," then
            is_value = sign == ":" and depth == 1 or (is_value and depth > 1)
        else
            depth = depth + ((sign == "{" or sign == "[") and 1 or -1)
            if depth < 1 then
                return found
            end
        end
    end
end

function M.form(text, kind, names)
    local found, boundary = {}, kind:match('boundary="?([^";]+)')
    local from = boundary and text:find("--" .. boundary, 1, true)
    for _ = 1, PARTS do
        if not from then
            break
        end
        from = from + #boundary + 2
        local to = text:find("\r\n--" .. boundary, from, true)
        if not to then
            break
        end
        local headers, value = text:sub(from, math.min(to - 1, from + 2 * LONGEST)):match("^(.-)\r\n\r\n(.*)$")
        local name = headers and headers:match('[%s;]name="?([^";\r\n]+)')
        if name and names[name] and not found[name] then
            found[name] = value
        end
        from = to + 2
    end
    return found
end

return M
