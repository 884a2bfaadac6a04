-- A few fields of a request's body, read from its beginning: texts at the top level of a JSON object, or parts of a
-- form. The body is passed on unchanged, so it isn't parsed entirely. A megabyte takes a while, so other requests get
-- their turn in between.

local json = require "cjson.safe"

local M = {}
local LONGEST = 4096  -- bytes of a field in the body
local STEPS = 2000  -- tokens that are read before other requests get their turn
local PARTS = 100  -- of a form, which must include the fields

local function count(steps)
    if steps < STEPS then
        return steps + 1
    end
    ngx.sleep(0)
    return 0
end

-- The end of the text that begins at `from`; nil if it doesn't end.
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

-- The fields with these names; of two with one name the first counts.
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
